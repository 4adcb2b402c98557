"""Subscriptions of connections: rights, limits, start positions, and the subscriptions passed on to links."""

from __future__ import annotations

from typing import Protocol

from polycast.broker import Hub, Mesh, Requests
from polycast.errors import BehindError, ForbiddenError, LimitError, PeerError, ProtocolError
from polycast.model import Encoder, Exact, Pattern, StartPosition, Subscribe
from polycast.routing import Subscriber
from polycast.server.dispatch.broker_events import BrokerEvents
from polycast.server.dispatch.link_control import LinkControl
from polycast.server.dispatch.request_handler import may_offer
from polycast.server.io.connection import Connection


class Replaying(Protocol):
    """Interface of replays."""

    def begin(
        self, connection: Connection, pattern: Pattern, encoder: Encoder, start: StartPosition | None
    ) -> None: ...
    def change(self, connection: Connection, pattern: Pattern, encoder: Encoder) -> bool: ...
    def note(self, connection: Connection, pattern: Pattern) -> None: ...
    def drop(self, connection: Connection, pattern: Pattern) -> None: ...
    @property
    def next(self) -> int:
        """The next offset of the log."""
        ...


class SubscriptionHandler:
    def __init__(
        self, hub: Hub, mesh: Mesh, requests: Requests, links: LinkControl, events: BrokerEvents, limit: int
    ) -> None:
        self._hub = hub
        self._mesh = mesh
        self._requests = requests
        self._links = links
        self._events = events
        self.limit = limit
        """Subscriptions of one connection."""
        self.replays: Replaying | None = None
        """None: there is no log."""
        self.in_cluster = False
        """In a cluster, an offset past this node's end may exist at another node."""

    def limit_link(self, connection: Connection) -> None:
        """A link gets the topics that it may subscribe to, one by one, of those that it subscribed to.

        A link subscribes to substrings, which a rule for `a.>` does not cover; nor does it know the rules here.
        Links have no replays: live messages are all that they get.
        """
        guard = connection.guard
        may_receive = lambda topic: guard.may_subscribe(Exact(topic))  # noqa: E731
        self._hub.router.limit(connection.subscriber, may_receive if guard.restricted else None)

    def subscribe(self, connection: Connection, event: Subscribe) -> PeerError | None:
        """The error that ends the connection, if the subscription is refused."""
        subscriber, guard = connection.subscriber, connection.guard
        if event.serve and (error := self._offer(connection, event.pattern.value)):
            return error
        if guard.restricted and not subscriber.link and not guard.may_subscribe(event.pattern):
            return None if event.serve else _forbid(connection, "subscribe to", str(event.pattern))
        new, count = event.pattern not in subscriber.patterns, len(subscriber.patterns)
        if count >= self.limit and new:
            return LimitError("subscription", count + 1, self.limit, "limits.subscriptions")
        if error := self._ahead(event) or _set_delivery(subscriber, event):
            return error
        if self.replays and _is_replayed(connection, event):
            self._events.subscribe(connection, event)
            self.replays.begin(connection, event.pattern, event.encoder, event.start)
            self._links.apply(self._mesh.subscribed(subscriber, event.pattern) if new else [])
        elif not (self.replays and self.replays.change(connection, event.pattern, event.encoder)):
            self._subscribe_live(connection, event)
        return None

    def unsubscribe(self, connection: Connection, pattern: Pattern) -> None:
        subscriber = connection.subscriber
        self._requests.withdraw(subscriber, pattern.value)
        if pattern in subscriber.patterns:
            self._events.unsubscribe(connection, pattern)
        if self._hub.unsubscribe(subscriber, pattern):
            self._links.apply(self._mesh.unsubscribed(subscriber, pattern))
            if self.replays:
                self.replays.drop(connection, pattern)

    def _offer(self, connection: Connection, route: str) -> PeerError | None:
        """The connection gets requests for this route; it needs the right to subscribe for messages."""
        if connection.guard.restricted and not may_offer(connection.guard, route):
            return _forbid(connection, "serve", route)
        routes = self._requests.served_by(connection.subscriber)
        if len(routes) >= self.limit and route not in routes:
            return LimitError("route", len(routes) + 1, self.limit, "limits.subscriptions")
        self._requests.offer(connection.subscriber, route)
        return None

    def _subscribe_live(self, connection: Connection, event: Subscribe) -> None:
        subscriber = connection.subscriber
        if event.pattern not in subscriber.patterns:
            self._events.subscribe(connection, event)
        if self._hub.subscribe(subscriber, event.pattern, event.encoder):
            self._links.apply(self._mesh.subscribed(subscriber, event.pattern))
            self._links.introduce(connection, event)
            if self.replays:
                self.replays.note(connection, event.pattern)

    def _ahead(self, event: Subscribe) -> PeerError | None:
        """The error for a start at an offset or a sequence that does not exist yet."""
        if event.start and self.replays and (event.start.offset or 0) > self.replays.next:
            there = f"the log has come to offset {self.replays.next:,}, there is no {event.start.offset:,} yet"
            return self._to_ahead(there, "is it the offset of another log?")
        if event.start is None or event.start.sequence is None:
            return None
        topics = self._hub.router.topics
        topic = topics.get(event.pattern.value.encode())
        reached = topic.next_sequence if topic else topics.floor
        if event.start.sequence <= reached:
            return None
        there = (
            f"{event.pattern.value!r} has come to sequence {reached:,}, there is no {event.start.sequence:,} yet"
        )
        return self._to_ahead(there, f"start at {reached:,} or at latest")

    def _to_ahead(self, there: str, hint: str) -> PeerError:
        if self.in_cluster:
            return BehindError(f"{there}; this node may be behind: connect again, or to another node")
        return ProtocolError(f"{there}; {hint}")


def _set_delivery(subscriber: Subscriber, event: Subscribe) -> PeerError | None:
    """Audiences are cached, so the delivery of a subscriber cannot change."""
    if event.committed and not subscriber.committed:
        if subscriber.patterns:
            return ProtocolError("delivery must be committed from the first subscription of a connection on")
        subscriber.committed = True
    return None


def _forbid(connection: Connection, act: str, name: str) -> ForbiddenError:
    connection.log_denial(act, name)
    return ForbiddenError()


def _is_replayed(connection: Connection, event: Subscribe) -> bool:
    """Whether the subscription begins with messages from the log."""
    subscriber = connection.subscriber
    last = connection.listener.replay == "last" and event.pattern not in subscriber.patterns
    return (event.start is not None or last) and not subscriber.link
