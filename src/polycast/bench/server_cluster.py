"""Three servers of NATS that form a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

from polycast.bench.target_connections import HOST, open_connection
from polycast.bench.target_process import START_LIMIT_SECONDS, accepts, running
from polycast.bench.wires.acked_formats import JetStream
from polycast.cluster.local_server import free_ports
from polycast.errors import StartError

SIZE = 3
CLUSTER_SETTINGS = """\
server_name: s{number}
max_payload: 4MB
cluster {{ name: bench, listen: "{host}:{route}", routes: [{routes}] }}
"""


@contextmanager
def run_servers(settings: str, program: str, folder: Path) -> Iterator[tuple[list[int], list[int]]]:
    """The ports and the processes of servers that form a cluster."""
    places = free_ports(2 * SIZE)
    ports, routes = places[:SIZE], places[SIZE:]
    dialled = ", ".join(f'"nats://{HOST}:{port}"' for port in routes)
    processes = []
    with ExitStack() as stack:
        for number, port in enumerate(ports):
            home = folder / f"s{number}"
            home.mkdir()
            text = (settings + CLUSTER_SETTINGS).format(
                host=HOST, port=port, folder=home, number=number, route=routes[number], routes=dialled
            )
            (home / "settings.conf").write_text(text)
            command = [program, "-c", str(home / "settings.conf")]
            server = stack.enter_context(running(command, home, lambda output, port=port: accepts(port)))  # type: ignore[misc]
            processes.append(server.process)
        if "jetstream" in settings:
            _await_stream(ports[0])
        yield ports, processes


def _await_stream(port: int) -> None:
    """Until the servers have elected a leader, and know each other: a stream with three replicas can be made."""
    wire = JetStream(SIZE)
    deadline = monotonic() + START_LIMIT_SECONDS
    request = json.dumps({"name": "READY", "subjects": ["ready"], "num_replicas": SIZE}).encode()
    while monotonic() < deadline:
        with open_connection("starting", port, wire.handshake) as connection:
            connection.send(
                b"SUB ready.reply 1\r\nPUB $JS.API.STREAM.CREATE.READY ready.reply %d\r\n" % len(request)
            )
            connection.send(request + b"\r\n")
            if connection.read_until(lambda inbox: b'"created":' in inbox, monotonic() + 1.0):
                return
        sleep(0.1)
    raise StartError(f"the servers made no stream within {START_LIMIT_SECONDS:g} s")
