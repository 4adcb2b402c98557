"""Connecting and subscribing before the clock starts. Blocking: nothing is measured yet."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic

from polycast.bench.cells import Cell
from polycast.bench.wires import Handshake, WireFormat
from polycast.errors import RemoteError

HOST = "127.0.0.1"
RESPONSE_LIMIT_SECONDS = 10.0
EXCERPT_BYTES = 40
READ_BYTES = 256 * 1024


class TargetConnection:
    """Received bytes collect in `inbox`, without keepalives."""

    def __init__(self, name: str, raw: socket.socket, keepalive: bytes) -> None:
        self.name = name
        self.socket = raw
        self.inbox = b""
        self._keepalive = keepalive

    def shake_hands(self, handshake: Handshake) -> None:
        self.send(handshake.sent)
        self.await_bytes(lambda inbox: handshake.expected in inbox, "handshake")

    def send(self, data: bytes) -> None:
        self.socket.settimeout(RESPONSE_LIMIT_SECONDS)
        self.socket.sendall(data)

    def await_bytes(self, enough: Callable[[bytes], bool], what: str) -> None:
        if not self.read_until(enough, monotonic() + RESPONSE_LIMIT_SECONDS):
            seen = f"the last of {len(self.inbox)} bytes are {self.inbox[-EXCERPT_BYTES:]!r}"
            raise RemoteError(f"{self.name}: no {what} within {RESPONSE_LIMIT_SECONDS:g} s; {seen}")

    def read_until(self, enough: Callable[[bytes], bool], deadline: float) -> bool:
        """Reads until `enough(inbox)` (True) or the deadline (False)."""
        while not enough(self.inbox):
            left = deadline - monotonic()
            if left <= 0:
                return False
            self.socket.settimeout(left)
            try:
                self._take(self.socket.recv(READ_BYTES))
            except TimeoutError:
                return False
        return True

    def _take(self, data: bytes) -> None:
        if not data:
            raise RemoteError(f"{self.name}: the target closed the connection")
        self.inbox += data
        if self._keepalive:
            self.inbox = self.inbox.replace(self._keepalive, b"")


@dataclass(frozen=True)
class SubscriberConnection:
    """`topics`: in the order of subscription."""

    connection: TargetConnection
    topics: list[str]


@dataclass(frozen=True)
class Participants:
    """The connections of one measurement, subscribed."""

    publisher: TargetConnection
    subscribers: list[SubscriberConnection]


@contextmanager
def open_connection(
    name: str, port: int, handshake: Handshake, keepalive: bytes = b""
) -> Iterator[TargetConnection]:
    """Connects and completes the handshake; closes the socket on exit."""
    with socket.create_connection((HOST, port), RESPONSE_LIMIT_SECONDS) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = TargetConnection(name, raw, keepalive)
        connection.shake_hands(handshake)
        yield connection


@contextmanager
def connect_all(wire: WireFormat, cell: Cell, publish_port: int, subscribe_port: int) -> Iterator[Participants]:
    """Connects the publisher and all subscribers, and subscribes; closes the sockets on exit."""
    with ExitStack() as stack:

        def connect(name: str, port: int, handshake: Handshake) -> TargetConnection:
            return stack.enter_context(open_connection(name, port, handshake, wire.keepalive))

        subscribers = []
        for index in range(cell.subscribers):
            connection = connect(f"subscriber {index}", subscribe_port, wire.subscriber)
            topics = cell.topics_of(index)
            connection.send(b"".join(wire.subscribe(topic, number) for number, topic in enumerate(topics, 1)))
            subscribers.append(SubscriberConnection(connection, topics))
        yield Participants(connect("publisher", publish_port, wire.publisher), subscribers)
