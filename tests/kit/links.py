"""Links between brokers: their number, and whether they deliver."""

from __future__ import annotations

from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from kit.wire import wait_for
from polycast.cluster.local_server import free_ports


def free_port() -> int:
    return free_ports(1)[0]


def open_links(broker: Broker) -> int:
    """How many links it has, by what a broker with -v says."""
    lines = [line for line in broker.log().splitlines() if "simplest.peer #" in line]
    return sum(line.endswith(": open") for line in lines) - sum(line.endswith(": gone") for line in lines)


def wait_for_links(broker: Broker, count: int) -> None:
    wait_for(lambda: open_links(broker) == count, f"{count} links")


def expect_delivered(source: Broker, target: Broker, name: str, data: bytes) -> None:
    """A client at the target receives from a client at the source, once."""
    with Room(source) as here, Room(target) as there:
        client = there.simplest(f"sub {name}\n".encode())
        probe = there.simplest(b"sub probe\n")

        def reached() -> bool:
            """A fence subscription after `name`: its delivery proves that `name` is subscribed."""
            here.simplest(pub("probe"))
            there.send_commands(probe, b"")
            probe.socket.setblocking(False)
            try:
                return bool(probe.socket.recv(65536))
            except BlockingIOError:
                return False

        wait_for(reached, "the link to carry")
        here.simplest(pub(name, data) + pub(name, b"end"))
        client.expect(pub(name, data) + pub(name, b"end"))
        there.expect_quiet(client)
