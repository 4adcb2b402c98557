"""The core of a broker: its collaborators, assembled once. Each user of a collaborator gets only that one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polycast.address import Address
from polycast.broker import ClusterSequencer, Hub, Ledger, LocalSequencer, Mesh, Requests
from polycast.declare import Histogram
from polycast.model import Abort, Body, Commit, Stage
from polycast.routing import Topic, Topics
from polycast.server.dispatch.acks import Acks, DurableAcks, ImmediateAcks
from polycast.server.dispatch.applied_acks import AppliedAcks, ReplicatedAcks
from polycast.server.dispatch.broker_events import BrokerEvents
from polycast.server.dispatch.dispatcher import Dispatcher
from polycast.server.dispatch.link_control import LinkControl
from polycast.server.dispatch.outbox import Outbox
from polycast.server.dispatch.publish_handler import PublishHandler
from polycast.server.dispatch.publisher import Publisher
from polycast.server.dispatch.refusals import Refusals
from polycast.server.dispatch.request_handler import RequestHandler
from polycast.server.dispatch.subscription_handler import SubscriptionHandler
from polycast.server.io.connection import Connection
from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.io.partial_frames import PartialFrames
from polycast.server.io.rate_limiter import RateLimiter
from polycast.server.settings import Settings
from polycast.server.stats.counters import Counters
from polycast.server.stats.node_health import NodeHealth
from polycast.server.stats.offset_times import OffsetTimes
from polycast.server.stats.pipeline_progress import PipelineProgress

if TYPE_CHECKING:
    from polycast.log.durable import Durable
    from polycast.log.log import Log
    from polycast.server.replay.replays import Replays
    from polycast.server.staging.commits import Commits


ClusterRoute = Callable[[Body], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class LogParts:
    """The parts of a broker with a log."""

    log: Log
    replays: Replays
    commits: Commits


class Core:
    def __init__(
        self, settings: Settings, node: str, log: Log | None, cluster: ClusterSequencer | None = None
    ) -> None:
        self.settings = settings
        """Current settings; a reload replaces some."""
        self.node = node
        self.log = log
        self.cluster = cluster
        self.cluster_routes: dict[str, ClusterRoute] = {}
        """Routes that a node serves with the help of others."""
        self.node_health: NodeHealth | None = None
        self.connections: dict[Connection, None] = {}
        self.counters: dict[tuple[str, str], Counters] = {}
        """Counters by listener and dialect."""
        self.addresses: list[tuple[str, Address]] = []
        """Name and address of each listener."""
        self.opened_listeners: Counter[str] = Counter()
        """Number of open addresses, by listener."""
        self.progress = PipelineProgress()
        self.offset_times = OffsetTimes()
        self.loop_delays = Histogram()
        """How late the event loop runs a timer."""
        simplest = settings.simplest
        self.ledger = to_ledger(settings, log)
        self.hub = Hub(self.ledger.topics)
        self.mesh = Mesh(
            self.hub,
            node,
            simplest.forward,
            simplest.forward_memory_seconds,
            simplest.forward_memory_messages,
        )
        self.requests = Requests(settings.ubre.request_seconds, settings.ubre.requests)
        self.budget = MemoryBudget(settings.limits.total_queue_bytes)
        self.partial_frames = PartialFrames(settings.limits.total_receive_bytes, self.budget)
        self.outbox = Outbox(self.hub.router)
        self.links = LinkControl(self.outbox)
        sequencer = cluster or LocalSequencer(self.ledger)
        self.publisher = Publisher(self.hub, self.mesh, sequencer, self.outbox, log, cluster)
        self.events = BrokerEvents(self.publisher, self.outbox, settings.events.unknown_per_second)
        self.publisher.before_publish = self.events.publish
        self.refusals = Refusals(self.events)
        durable = self._to_durable_acks(settings, log) if log else None
        self.acks: Acks = durable or ImmediateAcks(self.outbox.send)
        if cluster and durable:
            self.acks = applied = AppliedAcks(durable, lambda: cluster.proposed)
            self.publisher.on_proposed = applied.note_proposed
            cluster.attach(self.ledger, self.publisher.apply_remote, applied.apply, self._end_turn)
        rates = RateLimiter(settings.access, self.budget) if settings.access.paced else None
        self.publishing = PublishHandler(self.publisher, self.acks, self.refusals, rates)
        self.subscriptions = SubscriptionHandler(
            self.hub, self.mesh, self.requests, self.links, self.events, settings.limits.subscriptions
        )
        self.subscriptions.in_cluster = cluster is not None
        self.request_handler = RequestHandler(self.requests, self.outbox, self.refusals, self.budget)
        self.dispatcher = Dispatcher(
            self.hub,
            self.mesh,
            self.outbox,
            self.publisher,
            self.publishing,
            self.subscriptions,
            self.request_handler,
            self.acks,
            self.links,
            self.events,
            self.refusals,
            self.budget,
        )
        self.dispatcher.on_close.append(self._forget_rates)
        self.log_parts = self._add_log(log, durable, settings) if log and durable else None

    def _to_durable_acks(self, settings: Settings, log: Log) -> DurableAcks:
        replicated = self.cluster and settings.cluster.ack == "applied"
        return (ReplicatedAcks if replicated else DurableAcks)(log, self.outbox.send_reply)

    def _add_log(self, log: Log, acks: DurableAcks, settings: Settings) -> LogParts:
        # pyarrow is slow to import, and a broker without a log does not need it
        from polycast.server.replay.replays import Replays
        from polycast.server.staging.commits import Commits
        from polycast.server.staging.recovery import recover_stages
        from polycast.server.staging.shared import SharedStages
        from polycast.server.staging.spool import Spool
        from polycast.server.staging.stages import Stages

        replays = Replays(self.hub, self.publisher, self.outbox, log, settings.limits, self.events)
        spool = Spool(Path(settings.log.data) / "stages")
        stages = Stages(settings.hermod, spool)
        is_published = lambda batch: log.batches.find(batch, log.micros) is not None  # noqa: E731
        recover_stages(stages, spool, settings.limits.for_dialects(), is_published)
        shared = None
        if self.cluster:
            shared = SharedStages(stages, self.cluster, is_published, lambda: self.ledger.micros)
        commits = Commits(
            log,
            stages,
            settings.limits.for_dialects(),
            self.dispatcher,
            self.publishing,
            self.publisher,
            self.acks,
            self.refusals,
            self.budget,
            replays,
            self.mesh.forwards,
            shared,
        )
        self.budget.backlog = self._is_behind if self.cluster else log.is_behind
        self.budget.staged = lambda: stages.size
        self.publisher.before_bulk = replays.spill_audience
        self.subscriptions.replays = replays
        self.dispatcher.on_open = replays.context.note_link
        self.dispatcher.on_close.append(replays.leave)
        self.budget.on_caught_up = replays.context.pauses.end
        self.dispatcher.handlers |= dict.fromkeys((Stage, Commit, Abort), commits.handle)

        for listener in (self.publisher.release, acks.release, self._flush):
            log.on_durable(listener)
        return LogParts(log, replays, commits)

    def unopened(self) -> list[str]:
        """Listeners that do not listen at all of their addresses."""
        wanted = self.settings.listen.items()
        return [name for name, texts in wanted if self.opened_listeners[name] < len(texts)]

    def start(self) -> None:
        """Must be called in the event loop."""
        if self.log_parts:
            self.log_parts.log.start(asyncio.get_running_loop().call_soon_threadsafe)

    def _flush(self, durable: Durable) -> None:
        self._end_turn()

    def _end_turn(self) -> None:
        self.outbox.flush()
        self.publisher.note_flushed()

    def _is_behind(self, share: float) -> bool:
        assert self.log and self.cluster
        return self.log.is_behind(share) or self.cluster.is_behind(share)

    def spill(self, connection: Connection) -> None:
        """A connection with the policy `spill` whose queue is full."""
        assert self.log_parts
        self.log_parts.replays.spill(connection)

    def expire(self) -> None:
        """Ends requests without a response, and drops stages without a commit."""
        self.request_handler.expire()
        if self.log_parts:
            self.log_parts.commits.expire()
        self.outbox.flush()

    def fail_requests(self) -> None:
        """Fails all open requests: the broker stops."""
        self.request_handler.abandon()
        self.outbox.flush()

    async def stop_log_parts(self) -> None:
        if self.log_parts:
            await self.log_parts.commits.stop()
            await self.log_parts.replays.stop()

    def summary(self) -> str:
        """Counts that belong to no listener, for a log line."""
        return (
            f"publishers paused {self.budget.pauses:,} times, forwarded copies suppressed "
            f"{self.mesh.suppressed:,}, topics forgotten {self.ledger.topics.forgotten:,}"
        )

    def _forget_rates(self, connection: Connection) -> None:
        if self.publishing.rates:
            self.publishing.rates.forget(connection)


def to_ledger(settings: Settings, log: Log | None) -> Ledger:
    """Where the log ends, or an empty ledger."""
    topics = Topics(settings.limits.topics)
    if log is None:
        return Ledger(topics)
    found = log.recovered
    columns = (found.topics[name].to_pylist() for name in found.topics.column_names)
    position = found.position
    topics.restore(map(Topic, *columns), found.floor, *([position.generations] if position else []))
    micros = max(log.micros, position.micros if position else 0)
    return Ledger(topics, log.batches, log.next, micros)
