"""Replay: serves subscriptions from the log until they have caught up with live delivery.

A replay reads the log in a thread, a piece at a time, and queues no more than its connection sends. The recent
messages come from memory. When none is left, the subscription becomes live in the same turn of the event loop: no
message is missed, and none is delivered twice.

    start_replay   subscriptions that begin at a position in the log, or with the last message of each topic
    spill          all subscriptions of a connection whose queue is full, from the first message not delivered
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections.abc import Collection
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.bursts import to_bursts
from polycast.log.files.format import Gap
from polycast.log.read.query import pieces
from polycast.log.write.entry import Entry
from polycast.model import Burst, Encoder
from polycast.server.io.connection import Connection
from polycast.server.replay.context import ReplayContext
from polycast.server.replay.interest import Interest
from polycast.server.replay.read_ahead import ReadAhead

AHEAD_BYTES = 2 * 1024 * 1024
"""A replay pauses while more than this is queued for its connection; nor does it queue more at once."""
AHEAD_SHARE = 4
"""`AHEAD_BYTES` is at most this fraction of `limits.queue_bytes`, and of the replay's share of
`limits.total_queue_bytes`: the rest is for live messages."""
LEAST_AHEAD_BYTES = 16 * 1024
SHORTEST_WAIT, LONGEST_WAIT = 0.0005, 0.05
LONGEST_PAUSE, PAUSE_SHARE = 5.0, 0.1
"""A replay that has waited long for its connection looks again after this part of that time. It is woken when the
connection has sent all but a little."""
PATIENCE_SECONDS = 0.25
"""After this time without progress, the messages that were read are dropped from memory and read again later. The
time is shorter while other replays wait for that memory (see `rows_budget`)."""


class Replay:
    """One connection, from an offset to live delivery."""

    def __init__(self, context: ReplayContext, connection: Connection) -> None:
        self.context = context
        self.connection = connection
        self.log = context.log
        self._excluded = _excluded_sources(context, connection)
        self._committed = connection.subscriber.committed
        self.offset = -1
        self._brisk = True
        """Whether the subscriber has received in time what was queued for it."""
        read = partial(context.readers.read_rows, connection)
        self._rows = ReadAhead(self.log.folder, read, context.index.position)
        self.rows_budget = context.rows_budget

    @property
    def piece_bytes(self) -> int:
        """Many replays share what all connections may queue: slow subscribers must not use the memory up."""
        most = min(self.connection.listener.queue_bytes, self.context.queue_share()) // AHEAD_SHARE
        return max(LEAST_AHEAD_BYTES, min(AHEAD_BYTES, most))

    # -- per kind of replay ----------------------------------------------------------------------------

    async def find_start(self) -> int:
        raise NotImplementedError

    def interests_for(self, topic: bytes) -> tuple[Interest, ...]:
        """All with the same encoder. A message is sent if any of them includes it."""
        raise NotImplementedError

    def go_live(self) -> None:
        raise NotImplementedError

    def is_over(self) -> bool:
        return self.connection.closing or self.context.stopped

    # -- common -------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            self.offset = await self.find_start()
            while not self.is_over():
                if self.offset >= self.log.tail_first:
                    await self._give_back()  # the messages are in memory, and the wait may be long
                    await self.wait_for_room()
                    if not self.is_over() and self.offset >= self.log.tail_first and self._push_tail():
                        self.go_live()
                        return
                else:
                    await self._push_from_disk()
        finally:
            await self._give_back()

    async def until_durable(self, offset: int) -> None:
        """Waits until all messages before this offset are durable or lost."""
        wait = SHORTEST_WAIT
        self.log.hurry()
        while self.log.durable_next < offset and not self.is_over():
            await asyncio.sleep(wait)
            wait = min(1.5 * wait, LONGEST_WAIT)

    async def wait_for_room(self, patience: float = math.inf) -> bool:
        """Waits until most of the connection's queue is sent. False: that took longer than `patience` seconds."""
        wait, waited = SHORTEST_WAIT, 0.0
        await asyncio.sleep(0)
        while not self.is_over() and self.connection.queued() > self.piece_bytes:
            if waited > self.rows_budget.to_patience(self, patience):
                return False
            await self.context.pauses.wait(self.connection, wait)
            waited += wait
            wait = min(2 * wait, max(LONGEST_WAIT, PAUSE_SHARE * waited), LONGEST_PAUSE)
        return True

    async def _push_from_disk(self) -> None:
        self._brisk = await self.wait_for_room(PATIENCE_SECONDS)
        if not self._brisk or self.log.durable_next <= self.offset:
            await self._give_back()  # the wait may be long
            await self.wait_for_room()
        await self.until_durable(self.offset + 1)
        if not self.is_over():
            await self.rows_budget.acquire(self)
        if self.is_over():
            return
        batch = await self._read()
        if batch is None:
            return
        self._begin_next(batch)
        done = await self.push(batch, PATIENCE_SECONDS)
        if done < batch.num_rows:
            self.offset = batch["offset"][done].as_py()
        if done < batch.num_rows or self.rows_budget.is_turn_over(self):
            del batch
            await self._give_back()

    async def _read(self) -> pa.RecordBatch | None:
        lost = self.log.lost  # as of the end of this read
        batch, skipped, following = await self._rows.read(self.offset, self.log.durable_next)
        if batch is None and lost and lost.missed:
            skipped.append(lost)
        self._report_skipped(skipped)
        self.offset = max(self.offset, following)
        return batch

    def _begin_next(self, batch: pa.RecordBatch) -> None:
        """Reads ahead if the subscriber is brisk, and if there is memory for the rows of two reads."""
        size = batch.get_total_buffer_size()
        follows = self.offset < min(self.log.durable_next, self.log.tail_first)
        if self._brisk and follows and self.rows_budget.has_room_for(self, 2 * size):
            self._rows.begin(self.offset, self.log.durable_next)
            size *= 2
        self.rows_budget.resize(self, size)

    async def _give_back(self) -> None:
        """Drops what was read from memory."""
        await self._rows.close()
        self.rows_budget.release(self)

    def _report_skipped(self, skipped: list[Gap]) -> None:
        """Called before the rows behind the missing messages are sent."""
        for gap in skipped:
            if gap.next > self.offset:
                self.report(Gap(max(gap.first, self.offset), gap.next, gap.reason))
                self.offset = gap.next

    def report(self, gap: Gap) -> None:
        """Inserts the notice of missed messages into the stream."""
        self.log.note_missed(gap)
        if not (gap.refused and self._committed):  # committed delivery never includes lost messages
            self.context.miss(self.connection, gap)

    async def push(self, batch: pa.RecordBatch, patience: float = math.inf) -> int:
        """Queues rows in several turns of the event loop if they are large. Returns how many rows were queued in
        time: before the turn of the replay was over, except for the first piece."""
        done = 0
        for piece in pieces([batch], self.piece_bytes):
            if not await self.wait_for_room(patience) or self.is_over():
                break
            if done and self.rows_budget.is_turn_over(self):
                break
            for burst in to_bursts(self._without_excluded(piece)):
                self.push_burst(burst, 0, len(burst))
            done += piece.num_rows
        return done

    def _without_excluded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """An earlier run of the broker may have had a connection of the same name."""
        if not self._excluded:
            return batch
        before = pc.less(batch["offset"], self.context.first)
        excluded = pc.is_in(batch["source"], value_set=pa.array(self._excluded, pa.string()))
        return batch.filter(pc.or_(before, pc.invert(excluded)))

    def push_burst(self, burst: Burst, start: int, stop: int) -> None:
        parts: list[tuple[Encoder, list[tuple[int, int]]]] = []
        for run, first, last in burst.runs([(start, stop)]):
            interests = self.interests_for(burst.topics[run])
            begin = min([interest.begin(burst, run, first) for interest in interests], default=last)
            if begin < last:
                encoder = interests[0].encoder
                if not parts or parts[-1][0] is not encoder:
                    parts.append((encoder, []))
                _add(parts[-1][1], begin, last)
        for encoder, slices in parts:
            self.connection.queue.push_replayed(
                encoder.encode(burst, slices), sum(end - begin for begin, end in slices)
            )

    def _push_tail(self) -> bool:
        """Queues recent messages from memory. True: none is left."""
        size = 0
        for entry in self.log.tail(self.offset):
            if self._committed and entry.next > self.log.durable_next:
                break
            if not self.is_own(entry) and not (self._committed and entry.lost):
                for burst in entry.bursts:
                    size += self._push_more(burst, size)
                    if self.offset < burst.offset + len(burst):
                        return False
            self.offset = entry.next
        return True

    def is_own(self, entry: Entry) -> bool:
        return bool(self._excluded) and entry.source.decode() in self._excluded

    def _push_more(self, burst: Burst, size: int) -> int:
        """Queues as much of a burst as fits into a piece that has `size` bytes. Returns the bytes queued."""
        start, count = max(0, self.offset - burst.offset), len(burst)
        if start >= count or size >= self.piece_bytes:
            return 0
        begin = burst.starts[start]
        stop = max(start + 1, bisect_right(burst.ends, begin + self.piece_bytes - size, start))
        self.push_burst(burst, start, stop)
        self.offset = burst.offset + stop
        return burst.ends[stop - 1] - begin


def _excluded_sources(context: ReplayContext, connection: Connection) -> Collection[str]:
    """A connection without echo does not get its own messages; a link gets none of any link."""
    if connection.subscriber.link:
        return context.links
    return () if connection.listener.role.echo else (connection.name,)


def _add(slices: list[tuple[int, int]], start: int, stop: int) -> None:
    if slices and slices[-1][1] == start:
        slices[-1] = (slices[-1][0], stop)
    else:
        slices.append((start, stop))
