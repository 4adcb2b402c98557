"""The publisher: a burst gets its position, goes to its subscribers, and to the log.

    plan      which messages are published, under which names (mesh)
    propose   the sequencer puts the proposal in order
    apply     positions are known: deliver, append to the log

With `delivery = "committed"`, deliveries wait until the log reports them durable.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from polycast.broker import Applied, Delivery, Hub, Mesh, Plan, Proposal, Sequencer
from polycast.log.times import to_micros
from polycast.model import BatchKey, Burst
from polycast.routing import Subscriber
from polycast.server.dispatch.outbox import Outbox

if TYPE_CHECKING:
    from polycast.log.durable import Durable
    from polycast.log.log import Log
    from polycast.log.write.bulk import Bulk

FORWARD_BATCH_LIMIT = 10_000
"""Messages of a batch with an id on a broker with `simplest.forward`. The event loop plans the copies of each
message, in about 30 µs, and serves nothing else meanwhile."""
BROKER = "polycast"
"""The source of messages that the broker itself publishes."""


class Published(NamedTuple):
    """The result of one publish call."""

    applied: Applied | None
    """None: no message was left to propose."""
    accepted: int
    unreadable: int = 0
    """Messages refused because their topic is not UTF-8."""


Then = Callable[[Published], None]


class Held(NamedTuple):
    """Deliveries that wait for the log."""

    first: int
    next: int
    deliveries: list[Delivery]
    read_at: float


class Publisher:
    def __init__(self, hub: Hub, mesh: Mesh, sequencer: Sequencer, outbox: Outbox, log: Log | None) -> None:
        self._hub = hub
        self._mesh = mesh
        self._sequencer = sequencer
        self._outbox = outbox
        self._log = log
        self._broker = hub.join(self)
        self._committed = log is not None and log.settings.delivery == "committed"
        self._held: deque[Held] = deque()
        self._next = log.next if log else 0
        """The offset after the last message that was applied."""
        self._flushed = self._next
        """Everything before this offset was flushed to its subscribers."""
        self.before_publish: Callable[[], None] = lambda: None
        """Publishes the broker's own events that happened before this burst."""
        self.before_bulk: Callable[[Iterable[bytes], int], None] = lambda topics, offset: None
        """Turns the subscribers of these topics to the log from an offset on: bulk rows are read from there."""

    # -- propose -----------------------------------------------------------------------------------------

    def publish_own(self, burst: Burst, now: float, then: Then | None = None, source: str = BROKER) -> None:
        """Messages of the broker itself, or of a connection through one of its routes."""
        self.publish(burst, self._broker, source, now, then=then)

    def publish(
        self, burst: Burst, origin: Subscriber, source: str, now: float, batch: BatchKey | None = None,
        then: Then | None = None,
    ) -> None:  # fmt: skip
        """`then` is called when the burst is applied, in the order of the log."""
        self.before_publish()
        plan = self._mesh.plan(burst, origin, now)
        if plan.bursts:
            proposal = Proposal(plan.bursts, source, to_micros(now), batch, len(burst))
            self._sequencer.propose(proposal, partial(self._apply, plan, origin, then))
        elif then:
            then(Published(None, plan.accepted, plan.unreadable))

    def publish_bulk(self, bulk: Bulk, source: str, now: float, batch: BatchKey, then: Then) -> None:
        self.before_publish()
        proposal = Proposal((), source, to_micros(now), batch, sum(bulk.counts), bulk)
        self._sequencer.propose(proposal, partial(self._apply_bulk, bulk, then))

    def has_room(self, count: int) -> bool:
        """False: the log cannot take that many messages now."""
        return self._log is None or self._log.has_room(count)

    @property
    def forwards(self) -> bool:
        """Whether messages are published under other names as well."""
        return self._mesh.forwards

    # -- apply -------------------------------------------------------------------------------------------

    def _apply(self, plan: Plan, origin: Subscriber, then: Then | None, applied: Applied) -> None:
        if not applied.known:
            self._next = applied.next
            self._deliver(applied, self._deliveries(plan, origin, applied))
            if self._log:
                _, source, _, batch, messages, _ = applied.proposal
                self._log.append(plan.bursts, source, applied.micros, batch, messages)
        if then:
            then(Published(applied, plan.accepted, plan.unreadable))

    def _deliveries(self, plan: Plan, origin: Subscriber, applied: Applied) -> list[Delivery]:
        if plan.deliveries is not None:
            return plan.deliveries
        if len(plan.bursts) == 1:
            return self._hub.deliveries(plan.bursts[0], applied.topics[0], origin)
        pairs = zip(plan.bursts, applied.topics, strict=True)
        return [delivery for burst, topics in pairs for delivery in self._hub.deliveries(burst, topics, origin)]

    def _deliver(self, applied: Applied, deliveries: list[Delivery]) -> None:
        if not self._committed:
            self._outbox.deliver(deliveries)
        elif deliveries:
            read_at = self._outbox.read_at or time.monotonic()
            self._held.append(Held(applied.first, applied.next, deliveries, read_at))

    def _apply_bulk(self, bulk: Bulk, then: Then, applied: Applied) -> None:
        if not applied.known:
            assert self._log and applied.proposal.batch
            self.before_bulk(bulk.names, self._held[0].first if self._held else applied.first)
            self._next = applied.next
            source, batch = applied.proposal.source, applied.proposal.batch
            self._log.append_bulk(bulk, applied.first, applied.sequences, source, applied.micros, batch)
        then(Published(applied, sum(bulk.counts)))

    # -- delivered offsets -------------------------------------------------------------------------------

    def release(self, durable: Durable) -> None:
        """Delivers what became durable. Lost messages are never delivered."""
        while self._held and self._held[0].next <= durable.next:
            held = self._held.popleft()
            if not durable.reason:
                self._outbox.deliver_held(held.deliveries, held.read_at)

    def note_flushed(self) -> None:
        self._flushed = self.undelivered

    @property
    def undelivered(self) -> int:
        """The first offset that was not delivered."""
        return self._held[0].first if self._held else self._next

    def in_delivery(self) -> tuple[int, int]:
        """The offsets of the messages that are being delivered now."""
        return self._flushed, self.undelivered
