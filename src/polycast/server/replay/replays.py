"""All replays in progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from polycast.broker import Hub
from polycast.log.files.format import Gap
from polycast.log.log import Log
from polycast.model import Encoded, Encoder, Pattern, StartPosition
from polycast.routing import Audience
from polycast.server.dispatch.broker_events import BrokerEvents
from polycast.server.dispatch.outbox import SILENT, Outbox
from polycast.server.dispatch.publisher import Publisher
from polycast.server.io.connection import Connection
from polycast.server.replay.context import ReplayContext
from polycast.server.replay.last_offsets import LastOffsets
from polycast.server.replay.reader_pool import ReaderPool
from polycast.server.replay.replay import Replay
from polycast.server.replay.spill import SpillReplay
from polycast.server.replay.start_replay import LastMessageReplay, StartReplay
from polycast.server.settings import LimitSettings

log = logging.getLogger("polycast.replay")


class Replays:
    def __init__(
        self,
        hub: Hub,
        publisher: Publisher,
        outbox: Outbox,
        log: Log,
        limits: LimitSettings,
        events: BrokerEvents,
    ) -> None:
        self._hub = hub
        self._publisher = publisher
        self._outbox = outbox
        self.readers = ReaderPool(limits.reads, limits.read_seconds)
        self.context = ReplayContext(hub.router, log, self.readers)
        self.context.go_live = self._go_live
        self.context.miss = self._miss
        self.context.queue_share = lambda: limits.total_queue_bytes // max(1, self.count)
        self._events = events
        self.index = self.context.index
        self.last_offsets = LastOffsets(hub.router.topics, log.next)
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: dict[tuple[Connection, type[StartReplay]], StartReplay] = {}
        """Replays that take further subscriptions in this turn of the event loop."""
        self._open: dict[Connection, set[StartReplay]] = {}
        self._spilled: dict[Connection, SpillReplay] = {}
        self.spills = 0

    @property
    def count(self) -> int:
        return len(self._tasks)

    @property
    def next(self) -> int:
        return self.context.log.next

    # -- subscriptions -----------------------------------------------------------------------------------

    def begin(
        self, connection: Connection, pattern: Pattern, encoder: Encoder, start: StartPosition | None
    ) -> None:
        """None as start: begin with the last message of each topic."""
        if pattern in connection.subscriber.patterns:  # otherwise no replay has it, and there may be thousands
            self.drop(connection, pattern)
        key = connection, StartReplay if start else LastMessageReplay
        if key not in self._begun:
            replay = self._begun[key] = key[1](self.context, connection)
            self._open.setdefault(connection, set()).add(replay)
            asyncio.get_running_loop().call_soon(self._begin, key)
        self._begun[key].add(pattern, encoder, start or StartPosition())
        self._hub.subscribe(connection.subscriber, pattern, SILENT)

    def change(self, connection: Connection, pattern: Pattern, encoder: Encoder) -> bool:
        """Another encoder for a subscription that is served from the log; false if it is not."""
        if connection.subscriber.patterns.get(pattern) is not SILENT:
            return False
        for replay in self._open.get(connection, ()):
            replay.interests.change(pattern, encoder)
        return True

    def drop(self, connection: Connection, pattern: Pattern) -> None:
        for replay in self._open.get(connection, ()):
            replay.drop(pattern)

    def note(self, connection: Connection, pattern: Pattern) -> None:
        """A new live subscription; a spilled connection gets its messages from this point on."""
        if connection.queue.spilled:
            self._spilled[connection].note_made(pattern)

    def _go_live(self, connection: Connection, pattern: Pattern, encoder: Encoder, offset: int) -> None:
        if connection.queue.spilled:
            self._spilled[connection].note_served(pattern, offset)
        self._hub.subscribe(connection.subscriber, pattern, encoder)

    def _miss(self, connection: Connection, gap: Gap) -> None:
        count = gap.next - gap.first
        log.warning("%s: misses %s messages, offsets %s to %s: %s", connection, f"{count:,}", f"{gap.first:,}",
                    f"{gap.next - 1:,}", gap.reason)  # fmt: skip
        connection.listener.counters.missed += count
        notice = connection.session.to_miss(gap.first, gap.next, gap.cause)
        connection.queue.push_replayed(Encoded([notice] if notice else [], len(notice)), 0)
        self._events.miss(connection, gap.first, gap.next, gap.reason)

    def spill(self, connection: Connection) -> None:
        """The queue of the connection is full: from here on it is served from the log."""
        self._spill(connection, slow=True)

    def spill_audience(self, topics: Iterable[bytes], links: bool = True) -> None:
        """Serves all subscribers of these topics from the log: the next batch does not fit into their queues."""
        self._outbox.flush()
        for connection in _connections({self.context.audience(topic) for topic in topics}):
            live = not connection.queue.spilled and not connection.closing
            if live and (links or not connection.subscriber.link):
                connection.queue.start_spill()
                self._spill(connection, slow=False)

    def _spill(self, connection: Connection, slow: bool) -> None:
        self.spills += slow
        offset = self._publisher.undelivered(connection.subscriber.committed)
        replay = self._spilled[connection] = SpillReplay(self.context, connection, offset, slow)
        self._run(replay)

    # -- the end -----------------------------------------------------------------------------------------

    def leave(self, connection: Connection) -> None:
        """The connection closes: its reads are cancelled."""
        self.readers.cancel(connection)
        for replay in (*self._open.get(connection, ()), self._spilled.get(connection)):
            if replay:
                self.context.rows_budget.leave(replay)
        self.context.pauses.end(connection)

    async def stop(self) -> None:
        """Waits for all replays: a thread may be reading for one of them."""
        self.context.stopped = True
        self.context.rows_budget.stop()
        self.context.pauses.end_all()
        self.readers.fail_requests()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.readers.stop()
        self.index.close()

    def _begin(self, key: tuple[Connection, type[StartReplay]]) -> None:
        self._run(self._begun.pop(key))

    def _run(self, replay: Replay) -> None:
        if self.context.stopped:
            return
        task = asyncio.get_running_loop().create_task(replay.run())
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._ended(task, replay))

    def _ended(self, task: asyncio.Task[None], replay: Replay) -> None:
        self._tasks.discard(task)
        if isinstance(replay, StartReplay):
            self._forget(replay)
        elif self._spilled.get(replay.connection) is replay:
            del self._spilled[replay.connection]
        if task.cancelled():  # its connection closed
            return
        if error := task.exception():
            log.error("%s: the replay failed", replay.connection, exc_info=error)
            replay.connection.disconnect("replay", "the log cannot be read")

    def _forget(self, replay: StartReplay) -> None:
        mine = self._open[replay.connection]
        mine.discard(replay)
        if not mine:
            del self._open[replay.connection]


def _connections(audiences: Iterable[Audience]) -> set[Connection]:
    """The subscribers that get live messages."""
    return {
        member.owner
        for audience in audiences
        for encoder, members in audience.groups
        if encoder is not SILENT
        for member in members
        if member.owner is not None
    }
