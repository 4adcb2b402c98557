"""Links: connecting, subscribing, and proving that every subscription works, before the clock runs.

This part is blocking and slow on purpose: it reads real bytes. Not every wire acknowledges a subscription, so
one rule serves all: the publisher sends probes on the topic each subscriber subscribed to *last* until every
subscriber has heard one (commands on one connection are obeyed in order, so the earlier ones are then in
force too), then one fence. After the fence nothing is in flight, and every later byte is accounted for.
"""

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
PROBE_INTERVAL_SECONDS = 0.25
EXCERPT_BYTES = 40
READ_BYTES = 256 * 1024
PROBE = b"polycast-probe"
FENCE = b"polycast-fence"


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
    """A subscribed link, and what it is owed for a fence and for one cycle."""

    link: Link
    fence_topic: str
    fence: bytes
    cycle: bytes


@dataclass(frozen=True)
class Party:
    """Everyone who takes part in one measurement, connected and subscribed."""

    publisher: Link
    subscribers: list[Subscriber]


@contextmanager
def gather(wire: Wire, cell: Cell, publish_port: int, subscribe_port: int) -> Iterator[Party]:
    """Connect and subscribe everyone; the sockets are closed on leaving."""
    with ExitStack() as stack:

        def connect(name: str, port: int, greeting: Greeting) -> Link:
            address = (HOST, port)
            connected = stack.enter_context(socket.create_connection(address, ANSWER_LIMIT_SECONDS))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(name, connected, wire.keepalive)
            link.greet(greeting)
            return link

        subscribers = []
        for index in range(cell.subscribers):
            link = connect(f"subscriber {index}", subscribe_port, wire.subscriber)
            subscribers.append(_subscribe(link, wire, cell, index))
        yield Party(connect("publisher", publish_port, wire.publisher), subscribers)


def _subscribe(link: Link, wire: Wire, cell: Cell, index: int) -> Subscriber:
    topics = cell.topics_of(index)
    numbered = list(enumerate(topics, 1))
    link.send(b"".join(wire.subscribe(topic, number) for number, topic in numbered))
    return Subscriber(
        link=link,
        fence_topic=topics[-1],
        fence=wire.delivered(topics[-1], FENCE, len(topics)),
        cycle=b"".join(wire.delivered(topic, cell.payload, number) for number, topic in numbered),
    )


def prove(party: Party, wire: Wire, cycle: bytes) -> None:
    """Wait until every subscription is in force, then send one cycle and compare every byte that arrives."""
    topics = sorted({subscriber.fence_topic for subscriber in party.subscribers})
    fences = b"".join(wire.publish(topic, FENCE) for topic in topics)
    _probe(party, b"".join(wire.publish(topic, PROBE) for topic in topics))
    party.publisher.send(fences)
    for subscriber in party.subscribers:
        _drain_to_fence(subscriber)
    party.publisher.send(cycle + fences)
    for subscriber in party.subscribers:
        arrived = _drain_to_fence(subscriber)
        if arrived != subscriber.cycle:
            raise RemoteError(_difference(subscriber.link.name, arrived, subscriber.cycle))


def _probe(party: Party, probes: bytes) -> None:
    deaf = [subscriber.link for subscriber in party.subscribers]
    deadline = monotonic() + ANSWER_LIMIT_SECONDS
    while deaf:
        if monotonic() > deadline:
            raise RemoteError(f"{len(deaf)} subscribers heard no probe within {ANSWER_LIMIT_SECONDS:g} s")
        party.publisher.send(probes)
        patience = monotonic() + PROBE_INTERVAL_SECONDS
        deaf = [link for link in deaf if not link.hears(lambda inbox: PROBE in inbox, patience)]


def _drain_to_fence(subscriber: Subscriber) -> bytes:
    """Take everything up to the fence out of the inbox and return it, without the fence."""
    link = subscriber.link
    link.await_bytes(lambda inbox: inbox.endswith(subscriber.fence), "fence")
    arrived = link.inbox.removesuffix(subscriber.fence)
    link.inbox = b""
    return arrived


def _difference(name: str, arrived: bytes, owed: bytes) -> str:
    shared = min(len(arrived), len(owed))
    place = next((at for at in range(shared) if arrived[at] != owed[at]), shared)
    return (
        f"{name}: wrong bytes before timing: {len(arrived)} arrived, {len(owed)} owed; from byte {place}: "
        f"{arrived[place : place + EXCERPT_BYTES]!r} instead of {owed[place : place + EXCERPT_BYTES]!r}"
    )
