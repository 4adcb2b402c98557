"""Brokers with simulated links: queues of bytes, delivered in any order and cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import cast

from broker.numbering import Publication, publish
from polycast.broker import Hub, Ledger, Mesh
from polycast.broker.mesh import CloseLink, Effect, SubscribeAt, UnsubscribeAt
from polycast.dialects.registry import ROLES
from polycast.dialects.session import LinkSession, SessionContext
from polycast.dialects.simplest.session import ENCODER
from polycast.model import Burst, Closing, Event, Format, Limits, Pattern, Refused, Subscribe, Unsubscribe
from polycast.routing import Subscriber

Row = tuple[str, bytes]


@dataclass(eq=False)
class Client:
    """A local client of a node, and the messages it got."""

    subscriber: Subscriber = field(init=False)
    got: list[Row] = field(default_factory=list)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.got]


@dataclass(eq=False)
class End:
    """One end of a link."""

    node: Node
    dialed: bool
    identity: str = ""
    trust: int = 0
    subscriber: Subscriber = field(init=False)
    other: End = field(init=False)
    session: LinkSession = field(init=False)
    queue: bytearray = field(default_factory=bytearray)
    """Bytes that the other end sent and this end has not read."""
    unread: bytes = b""
    open: bool = True
    ended: bool = False
    """The other end sends no more."""
    sent: list[Row] = field(default_factory=list)
    arrived: list[Row] = field(default_factory=list)
    closed_by: list[object] = field(default_factory=list)

    def send(self, data: bytes) -> None:
        if self.open and self.other.open:
            self.other.queue += data

    @property
    def subscribed(self) -> set[str]:
        """The subscriptions of this broker at the other end."""
        return {pattern.value for pattern in self.other.subscriber.patterns}


class Node:
    def __init__(self, name: str, forward: bool = True, seconds: float = 10.0, messages: int = 1000) -> None:
        self.name = name
        self.ledger = Ledger()
        self.hub = Hub(self.ledger.topics)
        self.mesh = Mesh(self.hub, name, forward, seconds, messages)
        self.clients: list[Client] = []
        self.ends: list[End] = []
        self.unlinked: list[CloseLink] = []
        self.limits = Limits()
        self.now = 1000.0

    # -- clients -----------------------------------------------------------------------------------------

    def client(self, *patterns: Pattern, echo: bool = True) -> Client:
        client = Client()
        client.subscriber = self.hub.join(client, echo)
        self.clients.append(client)
        for pattern in patterns:
            self.subscribe(client.subscriber, pattern)
        return client

    def subscribe(self, subscriber: Subscriber, pattern: Pattern) -> None:
        if self.hub.subscribe(subscriber, pattern, ENCODER):
            self.apply(self.mesh.subscribed(subscriber, pattern))

    def unsubscribe(self, subscriber: Subscriber, pattern: Pattern) -> None:
        if self.hub.unsubscribe(subscriber, pattern):
            self.apply(self.mesh.unsubscribed(subscriber, pattern))

    def leave(self, subscriber: Subscriber) -> None:
        self.apply(self.mesh.leave(subscriber, self.hub.leave(subscriber)))

    def publish(self, origin: Subscriber, *rows: Row) -> Publication:
        messages = [(topic.encode(), payload, Format.BYTES) for topic, payload in rows]
        return self.spread(Burst.of("some", messages), origin)

    # -- links -------------------------------------------------------------------------------------------

    def accept(self, end: End) -> None:
        end.session = cast(LinkSession, ROLES["simplest.peer"].session(SessionContext(self.limits)))
        end.subscriber = self.hub.join(end, echo=False, link=True)
        self.ends.append(end)
        self.apply(self.mesh.join(end.subscriber, end.dialed, end.identity, end.trust))

    def read(self, end: End, data: bytes) -> None:
        received = end.session.receive(end.unread + data, self.now)
        end.unread = (end.unread + data)[received.consumed :]
        for event in received.events:
            if end.open:
                self.handle(end, event)

    def handle(self, end: End, event: Event) -> None:
        match event:
            case Burst():
                end.arrived += [(message.topic, message.payload) for message in event.messages()]
                self.spread(event, end.subscriber)
            case Subscribe(pattern):
                self.subscribe(end.subscriber, pattern)
            case Unsubscribe(pattern):
                self.unsubscribe(end.subscriber, pattern)
            case Closing(error):
                end.closed_by.append(error)
                self.close(end)
            case Refused(reason):
                raise AssertionError(f"brokers refuse each other's words: {reason}")
            case _:
                raise AssertionError(event)

    def close(self, end: End) -> None:
        if end.open:
            end.open = False
            end.queue.clear()
            end.other.ended = True
            self.ends.remove(end)
            self.leave(end.subscriber)

    def apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            end: End = effect.link.owner
            match effect:
                case SubscribeAt(_, text):
                    end.send(end.session.to_subscribe(text))
                case UnsubscribeAt(_, text):
                    end.send(end.session.to_unsubscribe(text))
                case CloseLink():
                    self.unlinked.append(effect)
                    self.close(end)

    # -- messages ----------------------------------------------------------------------------------------

    def spread(self, burst: Burst, origin: Subscriber) -> Publication:
        publication = publish(self.mesh, self.hub, self.ledger, burst, origin, self.now)
        for audience, published, slices, skip in publication.deliveries:
            rows = [(m.topic, m.payload) for start, stop in slices for m in published.cut(start, stop).messages()]
            wire = b"".join(ENCODER.encode(published, slices).blocks)
            for subscriber, _ in audience.members:
                if subscriber is not skip:
                    self.hand(subscriber.owner, rows, wire)
        return publication

    def hand(self, receiver: Client | End, rows: list[Row], wire: bytes) -> None:
        if isinstance(receiver, Client):
            receiver.got += rows
        else:
            assert not {p for _, p in rows} & {p for _, p in receiver.arrived}, "back to where it came from"
            receiver.sent += rows
            receiver.send(wire)


class Net:
    """Nodes, links, and the order in which bytes arrive."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Node] = []
        self.links: list[tuple[End, End]] = []
        self._random = Random(seed)

    def node(self, name: str, forward: bool = True, seconds: float = 10.0, messages: int = 1000) -> Node:
        node = Node(name, forward, seconds, messages)
        self.nodes.append(node)
        return node

    def link(self, one: Node, two: Node, *, near_as: str = "", far_as: str = "") -> tuple[End, End]:
        """`one` dials `two`. Each end knows the other by an identity."""
        near, far = End(one, dialed=True, identity=near_as), End(two, dialed=False, identity=far_as)
        near.other, far.other = far, near
        one.accept(near)
        two.accept(far)
        self.links.append((near, far))
        return near, far

    def pass_time(self, seconds: float) -> None:
        for node in self.nodes:
            node.now += seconds

    def step(self) -> bool:
        """Delivers some bytes at one end; False if none are in flight."""
        waiting = [end for pair in self.links for end in pair if end.open and (end.queue or end.ended)]
        if not waiting:
            return False
        self.deliver(self._random.choice(waiting))
        return True

    def deliver(self, end: End) -> None:
        if not end.queue:
            end.node.close(end)
            return
        size = self._random.choice([len(end.queue), self._random.randint(1, len(end.queue))])
        data = bytes(end.queue[:size])
        del end.queue[:size]
        end.node.read(end, data)

    def run_until_idle(self) -> None:
        while self.step():
            pass

    def open_links(self) -> list[tuple[End, End]]:
        return [(near, far) for near, far in self.links if near.open and far.open]
