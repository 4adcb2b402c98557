"""The dispatcher: carries out the events of sessions. One for the whole broker.

All events of one read are handled before anything is written; then each connection with output is flushed once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from polycast.broker import Hub, Mesh
from polycast.dialects.guard import Guard
from polycast.dialects.session import opening
from polycast.errors import PeerError
from polycast.model import (
    Abort,
    Ack,
    Burst,
    Closing,
    Commit,
    DeferredReply,
    Event,
    Exact,
    PublishBatch,
    PublishMessage,
    Refused,
    Reply,
    Request,
    RouteResponse,
    Stage,
    Subscribe,
    Unsubscribe,
    Upgrade,
)
from polycast.server.dispatch.acks import Acks
from polycast.server.dispatch.broker_events import BrokerEvents
from polycast.server.dispatch.link_control import LinkControl
from polycast.server.dispatch.outbox import Outbox
from polycast.server.dispatch.publish_handler import PublishHandler
from polycast.server.dispatch.publisher import Publisher
from polycast.server.dispatch.refusals import Refusals
from polycast.server.dispatch.request_handler import RequestHandler
from polycast.server.dispatch.subscription_handler import SubscriptionHandler
from polycast.server.io.connection import OPEN, Connection
from polycast.server.io.memory_budget import MemoryBudget

PUBLISHING = (Burst, PublishBatch, PublishMessage, Ack, Request, Stage, Commit, Abort)

Handler = Callable[[Connection, Any, float], None]
"""Called with a connection, an event of one type, and the time."""


class Dispatcher:
    def __init__(
        self,
        hub: Hub,
        mesh: Mesh,
        outbox: Outbox,
        publisher: Publisher,
        publishing: PublishHandler,
        subscriptions: SubscriptionHandler,
        requests: RequestHandler,
        acks: Acks,
        links: LinkControl,
        events: BrokerEvents,
        refusals: Refusals,
        budget: MemoryBudget,
    ) -> None:
        self._hub = hub
        self._mesh = mesh
        self._outbox = outbox
        self._publisher = publisher
        self._publishing = publishing
        self._subscriptions = subscriptions
        self._requests = requests
        self._acks = acks
        self._links = links
        self._events = events
        self._refusals = refusals
        self._budget = budget
        self._suspended: dict[Connection, list[Event]] = {}
        """Events of connections that wait for an earlier event of theirs to be done."""
        self._draining = False
        self._late: set[Connection] = set()
        """Connections that published after the log ended. Any reply to them could be taken for an ack."""
        self.on_open: Callable[[Connection], None] = lambda connection: None
        """Called for a new link."""
        self.on_close: list[Callable[[Connection], None]] = [outbox.forget, budget.forget, acks.forget]
        """Called when a connection leaves."""
        self.handlers: dict[type[Any], Handler] = {
            Subscribe: self._subscribe,
            Unsubscribe: lambda connection, event, now: subscriptions.unsubscribe(connection, event.pattern),
            Refused: lambda connection, event, now: refusals.refuse(
                connection, event.reason, event.count, event.detail
            ),
            Upgrade: self._upgrade,
            Closing: lambda connection, event, now: self._close(connection, event.error),
            Request: requests.request,
            RouteResponse: self._respond,
            DeferredReply: lambda connection, event, now: outbox.send(connection, event.encode()),
            Reply: lambda connection, event, now: acks.reply(connection, event.data),
            Ack: lambda connection, event, now: acks.acknowledge(connection, event),
            PublishBatch: publishing.publish_batch,
            PublishMessage: requests.publish,
        }
        outbox.awaits_reply = self.awaits_reply

    # -- connections -------------------------------------------------------------------------------------

    def open(self, connection: Connection) -> None:
        role, guard = connection.listener.role, connection.guard
        connection.subscriber = self._hub.join(connection, role.echo, role.link)
        connection.subscriber.committed = self._publisher.committed
        connection.subscriber.has_right = lambda topic: guard.may_subscribe(Exact(topic))
        if role.link:
            self._subscriptions.limit_link(connection)
            self._links.apply(
                self._mesh.join(connection.subscriber, connection.dialed, guard.identity, _trust_in(guard))
            )
            self.on_open(connection)
        self._events.connect(connection)
        self.handle(connection, opening(connection.session), 0.0)

    def review_link(self, connection: Connection) -> None:
        """After the rights of a link may have changed."""
        self._subscriptions.limit_link(connection)
        self._links.apply(self._mesh.set_trust(connection.subscriber, _trust_in(connection.guard)))

    def close(self, connection: Connection) -> None:
        """Removes the connection's subscriptions and requests. Called when closing begins, and when closed."""
        subscriber = connection.subscriber
        if subscriber.owner is None:
            return
        connection.session.close()
        self._events.disconnect(connection)
        for forget in self.on_close:
            forget(connection)
        self._suspended.pop(connection, None)
        patterns = self._hub.leave(subscriber)
        self._links.apply(self._mesh.leave(subscriber, patterns))
        self._requests.leave(subscriber)
        self._outbox.flush()

    def awaits_reply(self, connection: Connection) -> bool:
        return (
            self._acks.is_pending(connection)
            or connection in self._suspended
            or self._requests.is_pending(connection.subscriber)
        )

    # -- events ------------------------------------------------------------------------------------------

    def handle(self, connection: Connection, events: list[Event], now: float) -> None:
        published = False
        self._outbox.begin_turn(connection.touched_at)
        for index, event in enumerate(events):
            if connection.state is not OPEN:
                break
            if connection in self._suspended:
                self._suspended[connection] += events[index:]
                break
            if self._draining and self._is_late(connection, event):
                continue
            if type(event) is Burst:
                self._publishing.publish(connection, event, now)
                published = True
            elif handler := self.handlers.get(type(event)):
                handler(connection, event, now)
                published |= type(event) in (Request, PublishBatch, PublishMessage)
        self._outbox.end_turn()
        self._publisher.note_flushed()
        if published:
            self._budget.charge(connection)

    def suspend(self, connection: Connection) -> None:
        """Later events of the connection wait until `resume`; it is not read meanwhile."""
        self._suspended[connection] = []
        self._budget.hold(connection)

    def resume(self, connection: Connection) -> None:
        events = self._suspended.pop(connection, None)
        if events is None:
            return
        self._budget.release(connection)
        ended = connection.input_ended
        if ended:
            connection.resume_input()
        self.handle(connection, events, time.time())
        if ended:
            connection.end_input()
        if connection.input_ended and not self.awaits_reply(connection):
            connection.close()

    def _subscribe(self, connection: Connection, event: Subscribe, now: float) -> None:
        if error := self._subscriptions.subscribe(connection, event):
            self._close(connection, error)

    def _upgrade(self, connection: Connection, event: Upgrade, now: float) -> None:
        connection.upgrade(event.dialect, event.session)
        self._events.connect(connection)

    def _respond(self, connection: Connection, event: RouteResponse, now: float) -> None:
        if not self._requests.respond(connection, event):
            self._refusals.refuse(connection, "response without a request")

    def _close(self, connection: Connection, error: PeerError | None) -> None:
        """Not before the connection has all its acknowledgements."""
        self._acks.close(connection, partial(connection.fail, error) if error else connection.close)

    # -- the end -----------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        return self._draining

    def drain(self) -> None:
        """Ends the log: later publications are neither accepted nor acknowledged."""
        self._draining = True

    def _is_late(self, connection: Connection, event: Event) -> bool:
        if type(event) in PUBLISHING:
            self._late.add(connection)
        return connection in self._late and type(event) not in (DeferredReply, Closing)


def _trust_in(guard: Guard) -> int:
    """How far the broker believes a link's claim of its identity."""
    return 2 * guard.configured + (not guard.restricted)
