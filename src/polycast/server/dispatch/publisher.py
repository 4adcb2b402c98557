"""The publisher: a burst gets its position, goes to its subscribers, and to the log.

    plan      which messages are published, under which names (mesh)
    propose   the sequencer puts the proposal in order
    apply     positions are known: deliver, append to the log

Deliveries to subscribers with committed delivery wait until the log reports them durable.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from polycast.broker import Applied, ClusterSequencer, Delivery, Hub, Mesh, Plan, Proposal, Sequencer
from polycast.log.times import to_micros
from polycast.model import BatchKey, Burst
from polycast.routing import Subscriber
from polycast.server.dispatch.outbox import Outbox

if TYPE_CHECKING:
    from polycast.log.durable import Durable
    from polycast.log.log import Log
    from polycast.log.write.bulk import Bulk
    from polycast.server.io.connection import Connection

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
    def __init__(
        self, hub: Hub, mesh: Mesh, sequencer: Sequencer, outbox: Outbox, log: Log | None,
        cluster: ClusterSequencer | None = None,
    ) -> None:  # fmt: skip
        self._hub = hub
        self._mesh = mesh
        self._sequencer = sequencer
        self._outbox = outbox
        self._log = log
        self._cluster = cluster
        self._broker = hub.join(self)
        self._remote_link = hub.join(self, link=True)
        self._source = f"{BROKER}@{cluster.node}" if cluster else BROKER
        self.committed = log is not None and log.settings.delivery == "committed"
        """Whether all subscribers have committed delivery."""
        self._held: deque[Held] = deque()
        self._next = log.next if log else 0
        """The offset after the last message that was applied."""
        self._flushed = (self._next, self._next)
        """Everything before these offsets was flushed to its subscribers: live, and committed."""
        self.on_proposed: Callable[[Connection], None] | None = None
        """Called with the connection of each proposal, in a cluster."""
        self.before_publish: Callable[[], None] = lambda: None
        """Publishes the broker's own events that happened before this burst."""
        self.before_bulk: Callable[[Iterable[bytes]], None] = lambda topics: None
        """Serves the subscribers of these topics from the log: bulk rows are read from there."""

    # -- propose -----------------------------------------------------------------------------------------

    def publish_own(self, burst: Burst, now: float, then: Then | None = None, source: str = "") -> None:
        """Messages of the broker itself, or of a connection through one of its routes."""
        self.publish(burst, self._broker, source or self._source, now, then=then)

    def publish(
        self, burst: Burst, origin: Subscriber, source: str, now: float, batch: BatchKey | None = None,
        then: Then | None = None,
    ) -> None:  # fmt: skip
        """`then` is called when the burst is applied, in the order of the log."""
        self.before_publish()
        plan = self._mesh.plan(burst, origin, now)
        if plan.bursts:
            proposal = Proposal(plan.bursts, source, to_micros(now), batch, len(burst), None, origin.link)
            self._sequencer.propose(proposal, partial(self._apply, plan, origin, then))
            if self.on_proposed and origin.owner is not self:
                self.on_proposed(origin.owner)
        elif then:
            then(Published(None, plan.accepted, plan.unreadable))

    def publish_bulk(self, bulk: Bulk, source: str, now: float, batch: BatchKey, then: Then) -> None:
        self.before_publish()
        proposal = Proposal((), source, to_micros(now), batch, sum(bulk.counts), bulk)
        self._sequencer.propose(proposal, partial(self._apply_bulk, then))

    def has_room(self, count: int) -> bool:
        """False: the log cannot take that many messages now."""
        if self._cluster:
            return self._cluster.has_room()
        return self._log is None or self._log.has_room(count)

    @property
    def forwards(self) -> bool:
        """Whether messages are published under other names as well."""
        return self._mesh.forwards

    # -- apply -------------------------------------------------------------------------------------------

    def _apply(self, plan: Plan, origin: Subscriber, then: Then | None, applied: Applied) -> None:
        if not applied.known:
            self._finish_burst(plan.deliveries, origin, applied)
        if then:
            then(Published(applied, plan.accepted, plan.unreadable))

    def apply_remote(self, applied: Applied) -> None:
        """A proposal of another node."""
        if applied.known:
            return
        if applied.proposal.bulk:
            self._append_bulk(applied)
        else:
            self._finish_burst(None, self._remote_link if applied.proposal.link else self._broker, applied)

    def _finish_burst(self, planned: list[Delivery] | None, origin: Subscriber, applied: Applied) -> None:
        self._next = applied.next
        self._deliver(applied, self._deliveries(origin, applied) if planned is None else planned)
        if self._log:
            bursts, source, _, batch, messages, _, _ = applied.proposal
            self._log.append(bursts, source, applied.micros, batch, messages)
            if self._held:
                self._log.hurry()

    def _deliveries(self, origin: Subscriber, applied: Applied) -> list[Delivery]:
        bursts = applied.proposal.bursts
        if len(bursts) == 1:
            return self._hub.deliveries(bursts[0], applied.topics[0], origin)
        pairs = zip(bursts, applied.topics, strict=True)
        return [delivery for burst, topics in pairs for delivery in self._hub.deliveries(burst, topics, origin)]

    def _deliver(self, applied: Applied, deliveries: list[Delivery]) -> None:
        self._outbox.deliver(deliveries)
        if held := [delivery for delivery in deliveries if delivery.audience.committed]:
            read_at = self._outbox.read_at or time.monotonic()
            self._held.append(Held(applied.first, applied.next, held, read_at))

    def _apply_bulk(self, then: Then, applied: Applied) -> None:
        if not applied.known:
            self._append_bulk(applied)
        then(Published(applied, applied.proposal.messages))

    def _append_bulk(self, applied: Applied) -> None:
        _, source, _, batch, _, bulk, _ = applied.proposal
        assert self._log and batch and bulk
        self.before_bulk(bulk.names)
        self._next = applied.next
        self._log.append_bulk(cast("Bulk", bulk), applied.first, applied.sequences, source, applied.micros, batch)

    # -- delivered offsets -------------------------------------------------------------------------------

    def release(self, durable: Durable) -> None:
        """Delivers what became durable. Lost messages are never delivered."""
        while self._held and self._held[0].next <= durable.next:
            held = self._held.popleft()
            if not durable.reason:
                self._outbox.deliver_held(held.deliveries, held.read_at)

    def note_flushed(self) -> None:
        self._flushed = self.undelivered(False), self.undelivered(True)

    def undelivered(self, committed: bool) -> int:
        """The first offset that was not delivered, to subscribers with committed delivery or to all others."""
        return self._held[0].first if committed and self._held else self._next

    def in_delivery(self, committed: bool) -> tuple[int, int]:
        """The offsets of the messages that are being delivered now."""
        return self._flushed[committed], self.undelivered(committed)
