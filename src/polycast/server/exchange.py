"""The exchange: turns what sessions saw into what happens. One for the whole broker.

Everything that a read brings is handled before anything is written; then each connection that something is due
to is flushed once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, cast

from polycast.broker import Hub, Mesh, Peer, PeerTable, Publication, Requests, mesh, requests
from polycast.dialects.base import LinkSession, RequestSession
from polycast.errors import LimitError
from polycast.model import (
    RESERVED,
    Answer,
    Body,
    Burst,
    Closing,
    Deferred,
    Event,
    Format,
    Pattern,
    Refused,
    Reply,
    Request,
    Subscribe,
    Unsubscribe,
    Upgrade,
)
from polycast.routing import Subscriber
from polycast.server.budget import Budget
from polycast.server.connection import Connection
from polycast.server.settings import Settings

log = logging.getLogger("polycast.exchange")

DETAILS_AT_MOST = 1000
"""So many refusals of a kind are told in the log; the others are only counted."""

Routes = Callable[[Connection, str, Body, float], tuple[bool, Body]]
"""From who asks, the route, the body of the request and the time to whether it went well, and the answer."""


def _no_route(requester: Connection, route: str, body: Body, now: float) -> tuple[bool, Body]:
    return False, requests.word(requests.NOT_FOUND)


class Exchange:
    def __init__(self, settings: Settings, node: str) -> None:
        simplest = settings.simplest
        self.hub = Hub(settings.limits.topics)
        self.mesh = Mesh(
            self.hub,
            node,
            simplest.forward,
            simplest.forward_memory_seconds,
            simplest.forward_memory_messages,
        )
        self.peers = PeerTable()
        self.on_peer: Callable[[Peer], None] | None = None
        self.on_unlink: Callable[[Connection, mesh.Unlink], None] | None = None
        self.routes: Routes = _no_route
        """Who answers the requests that are for the broker itself."""
        self.announcement: tuple[bytes, bytes] | None = None
        """The topic and payload that say where this broker can be reached."""
        self.requests = Requests(settings.ubre.request_seconds, settings.ubre.requests)
        self.budget = Budget(settings.limits.total_queue_bytes)
        self._subscriptions = settings.limits.subscriptions
        self._touched: dict[Connection, None] = {}
        self._itself = self.hub.join(self)

    # -- a connection's life -----------------------------------------------------------------------------

    def open(self, connection: Connection) -> None:
        role = connection.port.role
        connection.subscriber = self.hub.join(connection, role.echo, role.link)
        if role.link:
            self._apply(self.mesh.join(connection.subscriber, connection.dialed))
        self.handle(connection, connection.session.open(), 0.0)

    def close(self, connection: Connection) -> None:
        """It takes part in nothing any more. To be said when it begins to end, and once more when it has."""
        subscriber = connection.subscriber
        if subscriber.owner is None:
            return
        connection.session.close()
        self._touched.pop(connection, None)
        self.budget.forget(connection)
        patterns = self.hub.leave(subscriber)
        self._apply(self.mesh.leave(subscriber, patterns))
        self._pass(self.requests.leave(subscriber))
        self._flush()

    def handle(self, connection: Connection, events: list[Event], now: float) -> None:
        published = False
        for event in events:
            if connection.closing:
                break
            if type(event) is Burst:
                self._publish(connection, event, now)
                published = True
            else:
                self._handle_other(connection, event, now)
                published |= type(event) is Request
        self._flush()
        if published:
            self.budget.charge(connection)

    def announce(self, now: float) -> None:
        """The broker says where it can be reached."""
        if self.announcement:
            self.publish(_announcement(*self.announcement), now)
            self._flush()

    def publish(self, burst: Burst, now: float) -> Publication:
        """The broker itself, or somebody through one of its routes, says something."""
        publication = self.mesh.publish(burst, self._itself, now)
        self._deliver(publication)
        return publication

    def owes(self, connection: Connection) -> bool:
        return self.requests.owes(connection.subscriber)

    def stop(self) -> None:
        """Whoever waits for an answer is told that there will be none."""
        self._pass(self.requests.abandon())
        self._flush()

    def expire(self) -> None:
        """Requests that nobody answered in time."""
        self._pass(self.requests.expire(time.monotonic()))
        self._flush()

    def summary(self) -> str:
        """What concerns no listener in particular, as words for a log line."""
        return (
            f"publishers paused {self.budget.pauses:,} times, forwarded copies suppressed "
            f"{self.mesh.suppressed:,}, topics forgotten {self.hub.router.topics.forgotten:,}"
        )

    # -- events ------------------------------------------------------------------------------------------

    def _publish(self, connection: Connection, burst: Burst, now: float) -> None:
        publication = self.mesh.publish(burst, connection.subscriber, now)
        counters = connection.port.counters
        counters.messages_in += publication.accepted
        if publication.refused:
            counters.refused["topic not UTF-8"] += publication.refused
        self._deliver(publication)
        if self.mesh.active or self.on_peer:
            for peer in self.peers.hear(burst, now):
                if self.on_peer:
                    self.on_peer(peer)

    def _handle_other(self, connection: Connection, event: Event, now: float) -> None:
        match event:
            case Subscribe():
                self._subscribe(connection, event)
            case Unsubscribe(pattern):
                self._unsubscribe(connection, pattern)
            case Reply(data):
                self._send(connection, data)
            case Deferred(make):
                self._send(connection, make())
            case Refused(reason, count, detail):
                self._refuse(connection, reason, count, detail)
            case Upgrade(dialect, session):
                connection.upgrade(dialect, session)
            case Closing(error):
                connection.fail(error) if error else connection.leave()
            case _:
                self._handle_request(connection, event, now)

    def _refuse(self, connection: Connection, reason: str, count: int = 1, detail: str = "") -> None:
        refused = connection.port.counters.refused
        refused[reason] += count
        worth = detail and refused[reason] <= DETAILS_AT_MOST
        log.log(logging.INFO if worth else logging.DEBUG, "%s: passed over: %s", connection, detail or reason)

    def _subscribe(self, connection: Connection, event: Subscribe) -> None:
        subscriber = connection.subscriber
        held = len(subscriber.patterns)
        if event.serve:
            self.requests.offer(subscriber, event.pattern.value)
        if held >= self._subscriptions and event.pattern not in subscriber.patterns:
            error = LimitError("subscription", held + 1, self._subscriptions, "limits.subscriptions")
            connection.fail(error)
        elif self.hub.subscribe(subscriber, event.pattern, event.form):
            self._apply(self.mesh.subscribed(subscriber, event.pattern))
            self._introduce(connection, event)

    def _unsubscribe(self, connection: Connection, pattern: Pattern) -> None:
        subscriber = connection.subscriber
        self.requests.withdraw(subscriber, pattern.value)
        if self.hub.unsubscribe(subscriber, pattern):
            self._apply(self.mesh.unsubscribed(subscriber, pattern))

    def _introduce(self, connection: Connection, event: Subscribe) -> None:
        """A link that asks for announcements need not wait for the next one."""
        if not self.announcement or not connection.subscriber.link:
            return
        topic, payload = self.announcement
        if event.pattern.matches(topic.decode()):
            encoded = event.form.encode(_announcement(topic, payload), [(0, 1)])
            self._touch(connection)
            connection.push(encoded.blocks, encoded.size, 1)

    def _handle_request(self, connection: Connection, event: Event, now: float) -> None:
        subscriber = connection.subscriber
        match event:
            case Request(route, handle, body) if route.startswith(RESERVED):
                self._pass([requests.Answered(subscriber, handle, *self.routes(connection, route, body, now))])
            case Request(route, handle, body):
                self._pass(self.requests.ask(subscriber, route, handle, body, time.monotonic()))
            case Answer(number, success, body):
                effects = self.requests.answer(subscriber, number, success, body)
                if effects is None:
                    self._refuse(connection, "answer that nobody waits for")
                self._pass(effects or [])

    def _pass(self, effects: list[requests.Effect]) -> None:
        """Requests to who answers them, answers to who asked."""
        for effect in effects:
            match effect:
                case requests.Forward(responder, number, route, body):
                    session = cast(RequestSession, responder.owner.session)
                    self._send(responder.owner, session.to_request(number, route, body))
                case requests.Answered(requester, handle, success, body):
                    self._answer(requester, handle, success, body)

    def _answer(self, requester: Subscriber, handle: Any, success: bool, body: Body) -> None:
        connection: Connection = requester.owner
        session = cast(RequestSession, connection.session)
        self._send(connection, session.to_answer(handle, success, body))
        if connection.heard_out and not self.owes(connection):
            connection.leave()

    def _apply(self, effects: list[mesh.Effect]) -> None:
        for effect in effects:
            connection: Connection = effect.link.owner
            session = cast(LinkSession, connection.session)
            match effect:
                case mesh.Ask(_, text):
                    self._send(connection, session.ask(text))
                case mesh.Unask(_, text):
                    self._send(connection, session.unask(text))
                case mesh.Unlink() if self.on_unlink:
                    self.on_unlink(connection, effect)

    # -- on the way out ----------------------------------------------------------------------------------

    def _deliver(self, publication: Publication) -> None:
        touched = self._touched
        for audience, burst, slices, skip in publication.deliveries:
            count = sum([stop - start for start, stop in slices])
            for form, members in audience.groups:
                blocks, size, lossy = form.encode(burst, slices)
                for member in members:
                    if member is not skip:
                        connection: Connection = member.owner
                        touched[connection] = None
                        connection.push(blocks, size, count)
                        if lossy:
                            connection.port.counters.lossy += lossy

    def _send(self, connection: Connection, data: bytes) -> None:
        self._touch(connection)
        if data:
            connection.push((data,), len(data), 0)

    def _touch(self, connection: Connection) -> None:
        self._touched[connection] = None

    def _flush(self) -> None:
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.flush()


def _announcement(topic: bytes, payload: bytes) -> Burst:
    return Burst.of("polycast", [(topic, payload, Format.BYTES)])
