"""Opens idle connections and holds them: `python -m polycast.bench.scale.idle_connections PORT COUNT SOURCE`.

A process of its own, because a process has a limit of open files. Each process has a source address, because an
address has no more than about 28,000 ephemeral ports. The ports are chosen here, below the ephemeral ones: the
system's search for a free port takes seconds when thousands are in use on another address. Prints the seconds
until the last connection was greeted, and holds all of them until its input ends.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator
from time import perf_counter

from polycast.bench.target_connections import HOST, RESPONSE_LIMIT_SECONDS
from polycast.bench.wires import WIRES

GREETING = WIRES["fanout"].subscriber.expected
SOURCE_PORTS = range(10_000, 32_000)
BATCH = 500
"""Connections that are not greeted yet: far less than a listener's backlog, past which a connect waits for 1 s."""


def open_all(port: int, count: int, source: str) -> list[socket.socket]:
    connections: list[socket.socket] = []
    ports = iter(SOURCE_PORTS)
    while len(connections) < count:
        batch = [_connect(port, source, ports) for _ in range(min(BATCH, count - len(connections)))]
        for connection in batch:
            _await_greeting(connection)
        connections += batch
    return connections


def _connect(port: int, source: str, ports: Iterator[int]) -> socket.socket:
    """From the next free port of the source address."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a run before may have used the port
    connection.settimeout(RESPONSE_LIMIT_SECONDS)
    for source_port in ports:
        try:
            connection.bind((source, source_port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        connection.connect((HOST, port))
        return connection
    raise ConnectionError(f"{source} has no free port between {SOURCE_PORTS.start} and {SOURCE_PORTS.stop}")


def _await_greeting(connection: socket.socket) -> None:
    received = connection.recv(len(GREETING), socket.MSG_WAITALL)
    if received != GREETING:
        raise ConnectionError(f"{received!r} instead of a greeting")


def main() -> None:
    port, count, source = sys.argv[1:]
    start = perf_counter()
    connections = open_all(int(port), int(count), source)
    sys.stdout.write(f"{perf_counter() - start}\n")
    sys.stdout.flush()
    sys.stdin.read()
    for connection in connections:
        connection.close()


if __name__ == "__main__":
    main()
