"""The exchange: turns what sessions saw into what happens. One for the whole broker.

Everything that a read brings is handled before anything is written; then each connection that something is due
to is flushed once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from polycast.broker import Delivery, Hub, Mesh, Peer, PeerTable, Publication, Requests, mesh
from polycast.broker.hub import parts_where
from polycast.declare import Histogram
from polycast.dialects.guard import Guard
from polycast.dialects.session import LinkSession, opening
from polycast.errors import ForbiddenError, PeerError
from polycast.log.durable import Durable
from polycast.model import (
    Abort,
    Ack,
    BatchKey,
    Burst,
    Closing,
    Commit,
    DeferredReply,
    Event,
    PublishBatch,
    Refused,
    Reply,
    Request,
    Response,
    Stage,
    Subscribe,
    Unsubscribe,
    Upgrade,
)
from polycast.routing import Subscriber, Topic
from polycast.server.access.rate_limiter import RateLimiter
from polycast.server.dispatch.acks import Keeping
from polycast.server.dispatch.delivery import Outgoing
from polycast.server.dispatch.request_handler import DETAILS_AT_MOST, FORBIDDEN, Asking
from polycast.server.dispatch.subscription_handler import Subscribing, to_announcement
from polycast.server.io.connection import Connection
from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.observe.broker_events import Events
from polycast.server.settings import Settings

if TYPE_CHECKING:
    from polycast.log.log import Log
    from polycast.server.replay.replays import Replays
    from polycast.server.staging.commits import Commits

log = logging.getLogger("polycast.exchange")

ITSELF = "polycast"
"""The source of what the broker says by itself."""

PUBLISHING = (Burst, PublishBatch, Ack, Request, Stage, Commit, Abort)


class Held(NamedTuple):
    """What is delivered when the log has kept it."""

    first: int
    next: int
    deliveries: list[Delivery]
    began: float
    """When it was read, on the clock that only goes forward."""

    @property
    def messages(self) -> int:
        return sum(stop - start for delivery in self.deliveries for start, stop in delivery.slices)


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
        self.on_unlink: Callable[[Connection, mesh.CloseLink], None] | None = None
        self.announcement: tuple[bytes, bytes] | None = None
        """The topic and payload that say where this broker can be reached."""
        self.outgoing = Outgoing(self.hub, self.owes)
        self.requests = Requests(settings.ubre.request_seconds, settings.ubre.requests)
        self.asking = Asking(self.requests, self.outgoing)
        self.budget = MemoryBudget(settings.limits.total_queue_bytes)
        self.rates = RateLimiter(settings.access, self.budget) if settings.access.paced else None
        self.subscribing = Subscribing(self, settings.limits.subscriptions)
        self._itself = self.hub.join(self)
        self.keeping: Keeping | None = None
        self.replays: Replays | None = None
        self.commits: Commits | None = None
        """All three only where a log is kept."""
        self._settings = settings
        self.events = Events(self, settings.events.unknown_per_second)
        self._held: deque[Held] = deque()
        self.delays = Histogram()
        """From the read that brought a message to its hand-over, for messages that anybody hears."""
        self._began = 0.0
        """When what is handled now was read."""
        self._flushed = 0
        """Everything before this offset was handed to who hears it."""
        self._committed = settings.log.delivery == "committed"
        self.deaf = False
        self._unheard: set[Connection] = set()
        """Those who published too late; an answer to anything after that could be taken for one to it."""

    def keep(self, log: Log) -> None:
        """From here on everything goes to this log."""
        # pyarrow takes its time: who keeps nothing need not wait for it
        from polycast.server.replay.replays import Replays
        from polycast.server.staging.commits import Commits
        from polycast.server.staging.stages import Stages

        found = log.recovered
        names, sequences, offsets = (found.topics[name].to_pylist() for name in found.topics.column_names)
        self.hub.router.topics.restore(map(Topic, names, sequences, offsets), found.floor)
        self.hub.next_offset = log.next
        self.budget.backlog = log.is_behind
        self.keeping = Keeping(log, self.outgoing.send_owed)
        self.replays = Replays(self, log, self._settings.limits)
        stages = Stages(self._settings.hermod)
        self.budget.staged = lambda: stages.size
        self.commits = Commits(self, log, stages, self._settings.limits.for_dialects())
        loop = asyncio.get_running_loop()
        log.on_durable(self._on_durable)
        log.start(loop.call_soon_threadsafe)

    # -- a connection's life -----------------------------------------------------------------------------

    def open(self, connection: Connection) -> None:
        role = connection.port.role
        connection.subscriber = self.hub.join(connection, role.echo, role.link)
        if role.link:
            self.subscribing.limit(connection)
            guard = connection.guard
            self.apply(self.mesh.join(connection.subscriber, connection.dialed, guard.identity, _trust_in(guard)))
            if self.replays:
                self.replays.note_link(connection)
        self.events.connect(connection)
        self.handle(connection, opening(connection.session), 0.0)

    def close(self, connection: Connection) -> None:
        """It takes part in nothing any more. To be said when it begins to end, and once more when it has."""
        subscriber = connection.subscriber
        if subscriber.owner is None:
            return
        connection.session.close()
        self.events.disconnect(connection)
        self.outgoing.forget(connection)
        self.budget.forget(connection)
        if self.rates:
            self.rates.forget(connection)
        if self.keeping:
            self.keeping.forget(connection)
        if self.commits:
            self.commits.forget(connection)
        if self.replays:
            self.replays.leave(connection)
        patterns = self.hub.leave(subscriber)
        self.apply(self.mesh.leave(subscriber, patterns))
        self.asking.leave(subscriber)
        self.outgoing.flush()

    def handle(self, connection: Connection, events: list[Event], now: float) -> None:
        published = False
        began = self._began = connection.touched_at
        self.outgoing.delivered = 0
        for place, event in enumerate(events):
            if connection.closing or connection.heard_out:
                break
            if self.commits and connection in self.commits.waiting:
                self.commits.waiting[connection] += events[place:]
                break
            if self.deaf and self._is_too_late(connection, event):
                continue
            if type(event) is Burst:
                self.publish_for(connection, event, now)
                published = True
            else:
                self._handle_other(connection, event, now)
                published |= type(event) is Request or type(event) is PublishBatch
        self.outgoing.flush()
        self._flushed = self._undelivered()
        self._began = 0.0
        if self.outgoing.delivered:
            self.delays.add(time.monotonic() - began, self.outgoing.delivered)
        if published:
            self.budget.charge(connection)

    def resume(self, connection: Connection, events: list[Event]) -> None:
        """What it said while it had to wait. It may have shut its side since."""
        shut, connection.heard_out = connection.heard_out, False
        self.handle(connection, events, time.time())
        connection.heard_out |= shut
        if connection.heard_out and not self.owes(connection):
            connection.leave()

    def announce(self, now: float) -> None:
        """The broker says where it can be reached."""
        if self.announcement:
            self.publish(to_announcement(*self.announcement), now)
            self.outgoing.flush()

    def publish(self, burst: Burst, now: float, source: str = ITSELF) -> Publication:
        """The broker itself, or somebody through one of its routes, says something."""
        return self._spread(burst, self._itself, source, now)

    def owes(self, connection: Connection) -> bool:
        kept = self.keeping is not None and self.keeping.owes(connection)
        if self.commits and connection in self.commits.waiting:
            return True
        return kept or self.asking.owes(connection.subscriber)

    def spill(self, connection: Connection) -> None:
        """It has got everything that was delivered up to now."""
        assert self.replays
        self.replays.spill(connection, self._undelivered())

    def due(self) -> tuple[int, int]:
        """The offsets between which everything lies that is handed to connections now."""
        return self._flushed, self._undelivered()

    def _undelivered(self) -> int:
        """The first offset that has not been delivered."""
        return self._held[0].first if self._held else self.hub.next_offset

    @property
    def slowed(self) -> int:
        """How often somebody had to wait for being too fast."""
        return self.rates.waits if self.rates else 0

    def stop(self) -> None:
        """Whoever waits for an answer is told that there will be none."""
        self.asking.abandon()
        self.outgoing.flush()

    def listen_no_more(self) -> None:
        """What is published from here on is neither taken nor answered: the log ends here."""
        self.deaf = True

    def _is_too_late(self, connection: Connection, event: Event) -> bool:
        if type(event) in PUBLISHING:
            self._unheard.add(connection)
        return connection in self._unheard and type(event) not in (DeferredReply, Closing)

    async def end_replays(self) -> None:
        if self.commits:
            await self.commits.stop()
        if self.replays:
            await self.replays.stop()

    def expire(self) -> None:
        """Requests that nobody answered in time, and what was staged and not committed."""
        self.asking.expire()
        if self.commits:
            self.commits.expire()
        self.outgoing.flush()

    def summary(self) -> str:
        """What concerns no listener in particular, as words for a log line."""
        return (
            f"publishers paused {self.budget.pauses:,} times, forwarded copies suppressed "
            f"{self.mesh.suppressed:,}, topics forgotten {self.hub.router.topics.forgotten:,}"
        )

    # -- events ------------------------------------------------------------------------------------------

    def publish_for(self, connection: Connection, burst: Burst, now: float, batch: BatchKey | None = None) -> None:
        """This connection says something."""
        if connection.guard.restricted and (forbidden := self._first_forbidden(connection, burst)) is not None:
            self._publish_allowed(connection, burst, forbidden, now)
            return
        if self.rates:
            self.rates.charge(connection, len(burst), sum(burst.ends) - sum(burst.starts))
        if self.keeping and not self.keeping.log.has_room(len(burst)):
            self.keeping.refuse(connection, len(burst))
            self.refuse(connection, "the log is behind", len(burst))
            return
        publication = self._spread(burst, connection.subscriber, connection.name, now, batch)
        counters = connection.port.counters
        counters.messages_in += publication.accepted
        connection.messages_in += publication.accepted
        if publication.refused:
            counters.refused["topic not UTF-8"] += publication.refused
            self.events.refuse(connection, "topic not UTF-8", publication.refused)
        if self.keeping and connection.session.acknowledges:
            self.keeping.note(connection, publication)
        if self.mesh.active or self.on_peer:
            for peer in self.peers.add_announced(burst, now):
                if self.on_peer:
                    self.on_peer(peer)

    def _publish_allowed(self, connection: Connection, burst: Burst, forbidden: int, now: float) -> None:
        """Ends a client at the first message that it may not publish.

        Other brokers send what they have, and do not know the rules here: for them the rest is passed over.
        """
        topic = burst.topics[bisect_right(burst.run_ends, forbidden)].decode(errors="replace")
        if connection.subscriber.link or connection.dialed:
            detail = connection.guard.denial_text("publish to", topic)
            allowed = parts_where(burst, connection.guard.may_publish)
            for part in allowed:
                self.publish_for(connection, part, now)
            self.refuse(connection, ForbiddenError.kind, len(burst) - sum(map(len, allowed)), detail)
            return
        connection.forbid("publish to", topic)
        if forbidden:
            self.publish_for(connection, burst.cut(0, forbidden), now)
        self._end(connection, ForbiddenError())

    def _first_forbidden(self, connection: Connection, burst: Burst) -> int | None:
        """The first message that this connection may not publish."""
        for run, topic in enumerate(burst.topics):
            if not connection.guard.may_publish(topic):
                return burst.run_ends[run - 1] if run else 0
        return None

    def _spread(
        self, burst: Burst, origin: Subscriber, source: str, now: float, batch: BatchKey | None = None
    ) -> Publication:
        """To who hears it, and to the log; with `delivery = committed` the other way round."""
        if self.events.rows:
            self.events.publish()
        publication = self.mesh.publish(burst, origin, now)
        if not self.keeping:
            self.outgoing.deliver(publication.deliveries)
            return publication
        if not self._committed:
            self.outgoing.deliver(publication.deliveries)
        elif publication.deliveries:
            began = self._began or time.monotonic()
            first = publication.bursts[0].offset
            self._held.append(Held(first, self.hub.next_offset, publication.deliveries, began))
        self.keeping.keep(publication, source, now, batch, len(burst))
        return publication

    def _publish_once(self, connection: Connection, event: PublishBatch, now: float) -> None:
        """All of it, or nothing: the rights may have changed since it was read."""
        assert self.keeping
        count = len(event.burst)
        known = self.keeping.log.batches.find(event.batch, self.keeping.micros(now))
        if connection.guard.restricted and self._first_forbidden(connection, event.burst) is not None:
            self.refuse(connection, FORBIDDEN)
            self.keeping.reply(connection, event.to_error(403, FORBIDDEN))
        elif known and known.count != count:
            self.refuse(connection, "batch id with another count")
            self.keeping.reply(connection, event.to_error(422, known.mismatch(event.batch, count)))
        else:
            if known:
                self.keeping.note_again(connection, known.first, known.count)
            else:
                self.publish_for(connection, event.burst, now, event.batch)
            self.keeping.answer(connection, Ack(event.to_ack(count), event.to_failure))

    def _on_durable(self, durable: Durable) -> None:
        assert self.keeping
        due: list[Held] = []
        while self._held and self._held[0].next <= durable.next:
            held = self._held.popleft()
            if not durable.reason:
                self.outgoing.deliver_held(held.deliveries)
                due.append(held)
        self.keeping.on_durable(durable)
        self.outgoing.flush()
        self._flushed = self._undelivered()
        now = time.monotonic() if due else 0.0
        for held in due:
            self.delays.add(now - held.began, held.messages)

    def _handle_other(self, connection: Connection, event: Event, now: float) -> None:
        match event:
            case Subscribe():
                if error := self.subscribing.begin(connection, event):
                    self._end(connection, error)
            case Unsubscribe(pattern):
                self.subscribing.end(connection, pattern)
            case Refused(reason, count, detail):
                self.refuse(connection, reason, count, detail)
            case Upgrade(dialect, session):
                connection.upgrade(dialect, session)
                self.events.connect(connection)
            case Closing(error):
                self._end(connection, error)
            case Request():
                self.asking.ask(connection, event, now)
            case Response():
                self._take_answer(connection, event)
            case _:
                self._handle_words(connection, event, now)

    def _handle_words(self, connection: Connection, event: Event, now: float) -> None:
        """What is said to the connection alone; for some of it the log must have done its work."""
        match event:
            case DeferredReply(encode):
                self.outgoing.send(connection, encode())
            case Reply(data) if self.keeping:
                self.keeping.reply(connection, data)
            case Ack() if self.keeping:
                self.keeping.answer(connection, event)
            case Reply(data) | Ack(data):
                self.outgoing.send(connection, data)
            case PublishBatch():
                self._publish_once(connection, event, now)
            case Stage() | Commit() | Abort() if self.commits:
                self.commits.handle(connection, event)

    def _take_answer(self, connection: Connection, answer: Response) -> None:
        if not self.asking.answer(connection, answer):
            self.refuse(connection, "answer that nobody waits for")

    def _end(self, connection: Connection, error: PeerError | None) -> None:
        """Not before it has all answers that it is owed."""
        end = partial(connection.fail, error) if error else connection.leave
        if self.keeping and self.keeping.owes(connection):
            connection.heard_out = True
            self.keeping.end(connection, end)
        else:
            end()

    def refuse(self, connection: Connection, reason: str, count: int = 1, detail: str = "") -> None:
        refused = connection.port.counters.refused
        refused[reason] += count
        self.events.refuse(connection, reason, count)
        worth = detail and refused[reason] <= DETAILS_AT_MOST
        log.log(logging.INFO if worth else logging.DEBUG, "%s: passed over: %s", connection, detail or reason)

    def apply(self, effects: list[mesh.Effect]) -> None:
        for effect in effects:
            connection: Connection = effect.link.owner
            session = cast(LinkSession, connection.session)
            match effect:
                case mesh.SubscribeAt(_, text):
                    self.outgoing.send(connection, session.to_subscribe(text))
                case mesh.UnsubscribeAt(_, text):
                    self.outgoing.send(connection, session.to_unsubscribe(text))
                case mesh.CloseLink() if self.on_unlink:
                    self.on_unlink(connection, effect)


def _trust_in(guard: Guard) -> int:
    """How far a broker is believed that says which one it is."""
    return 2 * guard.configured + (not guard.restricted)
