"""Links: connecting and subscribing, before the clock runs. Blocking: nothing is measured yet."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic

from polycast.bench.cells import Cell
from polycast.bench.wires import Greeting, Wire
from polycast.errors import RemoteError

HOST = "127.0.0.1"
ANSWER_LIMIT_SECONDS = 10.0
EXCERPT_BYTES = 40
READ_BYTES = 256 * 1024


class Link:
    """One connection; what it reads collects in `inbox`, without the wire's keepalives."""

    def __init__(self, name: str, connected: socket.socket, keepalive: bytes) -> None:
        self.name = name
        self.socket = connected
        self.inbox = b""
        self._keepalive = keepalive

    def greet(self, greeting: Greeting) -> None:
        self.send(greeting.hello)
        self.await_bytes(lambda inbox: greeting.welcome in inbox, "answer to the greeting")

    def send(self, data: bytes) -> None:
        self.socket.settimeout(ANSWER_LIMIT_SECONDS)
        self.socket.sendall(data)

    def await_bytes(self, enough: Callable[[bytes], bool], what: str) -> None:
        if not self.hears(enough, monotonic() + ANSWER_LIMIT_SECONDS):
            seen = f"the last of {len(self.inbox)} bytes are {self.inbox[-EXCERPT_BYTES:]!r}"
            raise RemoteError(f"{self.name}: no {what} within {ANSWER_LIMIT_SECONDS:g} s; {seen}")

    def hears(self, enough: Callable[[bytes], bool], deadline: float) -> bool:
        """Read until the inbox is enough (True) or the deadline has passed (False)."""
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
class Subscriber:
    """A link, and the topics it subscribed to in this order."""

    link: Link
    topics: list[str]


@dataclass(frozen=True)
class Party:
    """Everyone who takes part in one measurement, connected and subscribed."""

    publisher: Link
    subscribers: list[Subscriber]


@contextmanager
def connected(name: str, port: int, greeting: Greeting, keepalive: bytes = b"") -> Iterator[Link]:
    """A link that has been greeted; its socket is closed on leaving."""
    with socket.create_connection((HOST, port), ANSWER_LIMIT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(name, connection, keepalive)
        link.greet(greeting)
        yield link


@contextmanager
def gather(wire: Wire, cell: Cell, publish_port: int, subscribe_port: int) -> Iterator[Party]:
    """Connect and subscribe everyone; the sockets are closed on leaving."""
    with ExitStack() as stack:

        def connect(name: str, port: int, greeting: Greeting) -> Link:
            return stack.enter_context(connected(name, port, greeting, wire.keepalive))

        subscribers = []
        for index in range(cell.subscribers):
            link = connect(f"subscriber {index}", subscribe_port, wire.subscriber)
            topics = cell.topics_of(index)
            link.send(b"".join(wire.subscribe(topic, number) for number, topic in enumerate(topics, 1)))
            subscribers.append(Subscriber(link, topics))
        yield Party(connect("publisher", publish_port, wire.publisher), subscribers)
