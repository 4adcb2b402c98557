"""Subscriptions: with what each of them begins, and what else follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polycast.errors import ForbiddenError, LimitError, PeerError, ProtocolError
from polycast.model import Burst, Exact, Format, Pattern, Subscribe
from polycast.server.dispatch.request_handler import may_offer
from polycast.server.io.connection import Connection

if TYPE_CHECKING:
    from polycast.server.dispatch.dispatcher import Exchange


class Subscribing:
    def __init__(self, exchange: Exchange, most: int) -> None:
        self._exchange = exchange
        self.most = most
        """How many one connection may have."""

    def limit(self, connection: Connection) -> None:
        """A link gets what it may subscribe to of what it asks for, topic by topic.

        A link asks for substrings, which rules for `a.>` do not cover; nor does it know the rules. Links have no
        replays: what is live is all that they get.
        """
        guard = connection.guard
        may_receive = lambda topic: guard.may_subscribe(Exact(topic))  # noqa: E731
        self._exchange.hub.router.limit(connection.subscriber, may_receive if guard.restricted else None)

    def begin(self, connection: Connection, event: Subscribe) -> PeerError | None:
        """What is wrong with it, if it is refused: the connection ends."""
        exchange, subscriber, guard = self._exchange, connection.subscriber, connection.guard
        if event.serve and (wrong := self._offer(connection, event.pattern.value)):
            return wrong
        if guard.restricted and not subscriber.link and not guard.may_subscribe(event.pattern):
            return None if event.serve else _forbid(connection, "subscribe to", str(event.pattern))
        new, held = event.pattern not in subscriber.patterns, len(subscriber.patterns)
        if held >= self.most and new:
            return LimitError("subscription", held + 1, self.most, "limits.subscriptions")
        if wrong := self._sequence_ahead(event):
            return wrong
        replays = exchange.replays
        if replays and _is_replayed(connection, event):
            exchange.events.subscribe(connection, event)
            replays.begin(connection, event.pattern, event.encoder, event.start)
            exchange.apply(exchange.mesh.subscribed(subscriber, event.pattern) if new else [])
        elif not (replays and replays.change(connection, event.pattern, event.encoder)):
            self._begin_now(connection, event)
        return None

    def _offer(self, connection: Connection, route: str) -> PeerError | None:
        """From here on it gets requests for that route; what is published there only if it may subscribe."""
        requests, subscriber = self._exchange.requests, connection.subscriber
        if connection.guard.restricted and not may_offer(connection.guard, route):
            return _forbid(connection, "serve", route)
        served = requests.served_by(subscriber)
        if len(served) >= self.most and route not in served:
            return LimitError("route", len(served) + 1, self.most, "limits.subscriptions")
        requests.offer(subscriber, route)
        return None

    def _begin_now(self, connection: Connection, event: Subscribe) -> None:
        """With what comes from now on."""
        exchange, subscriber = self._exchange, connection.subscriber
        if event.pattern not in subscriber.patterns:
            exchange.events.subscribe(connection, event)
        if exchange.hub.subscribe(subscriber, event.pattern, event.encoder):
            exchange.apply(exchange.mesh.subscribed(subscriber, event.pattern))
            self._introduce(connection, event)
            if exchange.replays:
                exchange.replays.note(connection, event.pattern)

    def end(self, connection: Connection, pattern: Pattern) -> None:
        exchange, subscriber = self._exchange, connection.subscriber
        exchange.requests.withdraw(subscriber, pattern.value)
        if pattern in subscriber.patterns:
            exchange.events.unsubscribe(connection, pattern)
        if exchange.hub.unsubscribe(subscriber, pattern):
            exchange.apply(exchange.mesh.unsubscribed(subscriber, pattern))
            if exchange.replays:
                exchange.replays.drop(connection, pattern)

    def _sequence_ahead(self, event: Subscribe) -> PeerError | None:
        """What is wrong with a sequence that does not exist yet."""
        if event.start is None or event.start.sequence is None:
            return None
        topics = self._exchange.hub.router.topics
        topic = topics.get(event.pattern.value.encode())
        reached = topic.next_sequence if topic else topics.floor
        if event.start.sequence <= reached:
            return None
        return ProtocolError(
            f"{event.pattern.value!r} has come to sequence {reached:,}, there is no {event.start.sequence:,} yet; "
            f"ask for {reached:,} or for latest"
        )

    def _introduce(self, connection: Connection, event: Subscribe) -> None:
        """A link that asks for announcements need not wait for the next one."""
        exchange = self._exchange
        if not exchange.announcement or not connection.subscriber.link:
            return
        topic, payload = exchange.announcement
        may_receive = connection.subscriber.may_receive
        if event.pattern.matches(topic.decode()) and (may_receive is None or may_receive(topic.decode())):
            encoded = event.encoder.encode(to_announcement(topic, payload), [(0, 1)])
            exchange.outgoing.touch(connection)
            connection.push(encoded.blocks, encoded.size, 1)


def _forbid(connection: Connection, act: str, what: str) -> ForbiddenError:
    connection.forbid(act, what)
    return ForbiddenError()


def _is_replayed(connection: Connection, event: Subscribe) -> bool:
    """Whether it is to be served from the log first."""
    subscriber = connection.subscriber
    last = connection.port.replay == "last" and event.pattern not in subscriber.patterns
    return (event.start is not None or last) and not subscriber.link


def to_announcement(topic: bytes, payload: bytes) -> Burst:
    return Burst.of("polycast", [(topic, payload, Format.BYTES)])
