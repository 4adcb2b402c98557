"""Where a broker listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.program import polycast
from kit.room import Room
from kit.wire import GUARD_SECONDS, Peer


def dial(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(GUARD_SECONDS)
    sock.connect(str(path))
    return sock


def on_file(path: Path) -> tuple[str, ...]:
    return (f"--listen=simplest=ipc://{path}", f"--listen=fanout.client=ipc://{path}.fanout")


def test_port_0_picks_a_free_port_and_prints_it() -> None:
    with Broker() as one, Broker() as two:
        ports = [*one.ports.values(), *two.ports.values()]
        assert 0 not in ports
        assert len(set(ports)) == len(ports) == 2 * len(ALL)
        assert one.addresses == [(name, f"tcp://127.0.0.1:{port}") for name, port in one.ports.items()]


def test_only_named_listeners_open() -> None:
    with Broker(listen=("fanout.client",)) as broker:
        assert [name for name, _ in broker.addresses] == ["fanout.client"]


def test_two_addresses_for_one_name() -> None:
    names = ("simplest", "simplest", "fanout.client")
    with Broker(listen=names) as broker, Room(broker) as room:
        assert [name for name, _ in broker.addresses] == list(names)
        first = int(broker.addresses[0][1].rpartition(":")[2])
        assert first != broker.ports["simplest"]
        with Peer(first) as one:
            room.send_commands(one, b"sub x\n")
            two = room.simplest(b"sub y\n" + pub("x", b"1"))
            one.expect(pub("x", b"1"))
            room.send_commands(one, pub("y", b"2"))
            two.expect(pub("y", b"2"))


def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with Broker("--listen=fanout.client=tcp://[::1]:0", listen=()) as broker:
        [(_, address)] = broker.addresses
        assert address.startswith("tcp://[::1]:")
        with socket.create_connection(("::1", broker.ports["fanout.client"]), GUARD_SECONDS) as client:
            assert client.recv(65536) == b"debug!connected...\n"


def test_the_host_name_of_this_machine() -> None:
    with (
        Broker("--listen=fanout.client=tcp://localhost:0", listen=()) as broker,
        broker.connect("fanout.client") as client,
    ):
        client.expect(b"debug!connected...\n")
        assert len({address.rpartition(":")[2] for _, address in broker.addresses}) == 1


# -- ipc -------------------------------------------------------------------------------------------------


def test_ipc_works_like_tcp(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with Broker(*on_file(path), listen=()) as broker:
        assert broker.addresses[0] == ("simplest", f"ipc://{path}")
        with dial(Path(f"{path}.fanout")) as client, dial(path) as publisher:
            assert client.recv(100) == b"debug!connected...\n"
            client.sendall(b"subscribe x\ntime\n")
            assert client.recv(100).strip().isdigit()
            publisher.sendall(pub("x", b"hello"))
            assert client.recv(100) == b"x!hello\n"
        broker.stop()
        assert not path.exists()


def test_the_socket_file_of_a_broker_that_died_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with Broker(*on_file(path), listen=()) as first:
        first.exit_code = -9
        first.process.kill()
        first.process.wait(GUARD_SECONDS)
        assert path.exists()
        with Broker(*on_file(path), listen=()), dial(Path(f"{path}.fanout")) as client:
            assert client.recv(100) == b"debug!connected...\n"


def test_the_socket_file_of_a_live_broker_is_not_stolen(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with Broker(*on_file(path), listen=()):
        failed = polycast("serve", "--no-log", *on_file(path))
        assert failed.code == 1
        assert failed.out == b""
        assert "address already in use" in failed.err
        with dial(Path(f"{path}.fanout")) as client:
            assert client.recv(100) == b"debug!connected...\n"


def test_a_file_that_is_not_a_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    failed = polycast("serve", "--no-log", f"--listen=simplest=ipc://{path}")
    assert failed.code == 1
    assert str(path) in failed.err
    assert path.read_text() == "data"
