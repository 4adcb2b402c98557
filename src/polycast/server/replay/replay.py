"""Replay: subscribers that are served from the log until they have caught up with what is live.

A replay reads the log in a thread, a piece at a time, and hands on no more than its connection takes. What the
log still has in memory comes from there. When nothing is left, the subscription becomes live, in the same turn
of the event loop: nothing is missed and nothing comes twice.

    past    a subscription that begins somewhere in the past, or with the last message of each topic
    spill   a connection that fell behind, or that more came for than can be queued: all of its subscriptions, from
            the first message it did not get
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.bursts import to_bursts
from polycast.log.read.reader import Reader
from polycast.log.write.entry import Entry
from polycast.model import Burst, Encoder, Slices
from polycast.server.io.connection import Connection
from polycast.server.replay.interest import Wish

if TYPE_CHECKING:
    from polycast.server.replay.replays import Replays

AHEAD_BYTES = 1024 * 1024
"""A connection with more than this to take gets no more from the log for now; nor is more handed on at once."""
AHEAD_SHARE = 4
"""The same as a part of `limits.queue_bytes`, where that is less: the rest is for what is live."""
ROWS = 4096
"""How many messages are read at a time."""
SHORTEST_WAIT, LONGEST_WAIT = 0.0005, 0.05
PATIENCE_SECONDS = 0.25
"""Who takes nothing for so long need not have what was read for it kept in memory."""


class Replay:
    """One connection's way from some offset to now."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        self.replays = replays
        self.connection = connection
        self.log = replays.log
        self.piece_bytes = min(AHEAD_BYTES, connection.listener.queue_bytes // AHEAD_SHARE)
        self._unheard = _unheard(replays, connection)
        self.offset = -1
        self._reader: Reader | None = None

    # -- what kinds differ in ----------------------------------------------------------------------------

    async def find_start(self) -> int:
        raise NotImplementedError

    def wishes_for(self, topic: bytes) -> tuple[Wish, ...]:
        """All in one form. What one of them wants is wanted."""
        raise NotImplementedError

    def go_live(self) -> None:
        raise NotImplementedError

    def is_over(self) -> bool:
        return self.connection.closing or self.replays.stopped

    # -- what all do -------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            self.offset = await self.find_start()
            while not self.is_over():
                if self.offset >= self.log.tail_first:
                    await self.room()
                    if not self.is_over() and self.offset >= self.log.tail_first and self._push_tail():
                        self.go_live()
                        return
                else:
                    await self._push_piece()
        finally:
            if self._reader:
                self._reader.close()

    async def until_durable(self, offset: int) -> None:
        """Whatever was published before is on the disk, or never will be."""
        wait = SHORTEST_WAIT
        while self.log.durable_next < offset and not self.is_over():
            await asyncio.sleep(wait)
            wait = min(1.5 * wait, LONGEST_WAIT)

    async def room(self, patience: float = math.inf) -> bool:
        """Waits, ever less often, until the connection has taken most of what it was given; others come first."""
        wait, waited = SHORTEST_WAIT, 0.0
        await asyncio.sleep(0)
        while not self.is_over() and self.connection.queued() > self.piece_bytes:
            if waited > patience:
                return False
            await asyncio.sleep(wait)
            waited += wait
            wait = min(2 * wait, LONGEST_WAIT)
        return True

    async def _push_piece(self) -> None:
        """From the disk."""
        await self.room()
        await self.until_durable(self.offset + 1)
        if self._reader is None:
            self._reader = Reader(self.log.folder, self.offset)
        stop = self.log.durable_next
        batch = await self.replays.in_thread(self.connection, _read, self._reader, self.offset, stop)
        if batch is None:
            self.offset = stop
            return
        self.offset = self._reader.offset
        done = await self.push(batch, PATIENCE_SECONDS)
        if done < batch.num_rows:
            self.offset = batch["offset"][done].as_py()
            self._reader.close()
            self._reader = None

    async def push(self, batch: pa.RecordBatch, patience: float = math.inf) -> int:
        """In several turns what is large. Says how many rows the connection had the time to take."""
        rows = max(1, batch.num_rows * self.piece_bytes // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            if not await self.room(patience) or self.is_over():
                return start
            for burst in to_bursts(self._heard(batch.slice(start, rows))):
                self.push_burst(burst, 0, len(burst))
        return int(batch.num_rows)

    def _heard(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A broker that ran before may have had a connection of the same name."""
        if not self._unheard:
            return batch
        before = pc.less(batch["offset"], self.replays.first)
        unheard = pc.is_in(batch["source"], value_set=pa.array(self._unheard, pa.string()))
        return batch.filter(pc.or_(before, pc.invert(unheard)))

    def push_burst(self, burst: Burst, start: int, stop: int) -> None:
        parts: list[tuple[Encoder, Slices]] = []
        for run, first, last in burst.runs([(start, stop)]):
            wishes = self.wishes_for(burst.topics[run])
            begin = min([wish.begin(burst, run, first) for wish in wishes], default=last)
            if begin < last:
                encoder = wishes[0].encoder
                if not parts or parts[-1][0] is not encoder:
                    parts.append((encoder, []))
                _add(parts[-1][1], begin, last)
        for encoder, slices in parts:
            self.connection.queue.push_replayed(
                encoder.encode(burst, slices), sum(end - begin for begin, end in slices)
            )

    def _push_tail(self) -> bool:
        """From memory. Whether that was all there is."""
        size = 0
        for entry in self.log.tail(self.offset):
            if self.replays.committed and entry.next > self.log.durable_next:
                break
            if not self.is_own(entry):
                for burst in entry.bursts:
                    size += self._push_more(burst, size)
                    if self.offset < burst.offset + len(burst):
                        return False
            self.offset = entry.next
        return True

    def is_own(self, entry: Entry) -> bool:
        return bool(self._unheard) and entry.source.decode() in self._unheard

    def _push_more(self, burst: Burst, size: int) -> int:
        """As much of a burst as still fits into a piece of which there is so much. Says how much that was."""
        start, count = max(0, self.offset - burst.offset), len(burst)
        each = max(1, len(burst.block) // count)
        stop = min(count, start + max(1, self.piece_bytes // each))
        if start >= count or size >= self.piece_bytes:
            return 0
        self.push_burst(burst, start, stop)
        self.offset = burst.offset + stop
        return each * (stop - start)


def _unheard(replays: Replays, connection: Connection) -> Collection[str]:
    """Whose messages do not go to it: its own, unless it wants them back, and to a link those of all links."""
    if connection.subscriber.link:
        return replays.links
    return () if connection.listener.role.echo else (connection.name,)


def _add(slices: Slices, first: int, last: int) -> None:
    if slices and slices[-1][1] == first:
        slices[-1] = (slices[-1][0], last)
    else:
        slices.append((first, last))


def _read(reader: Reader, offset: int, stop: int) -> pa.RecordBatch | None:
    reader.seek(offset)
    return reader.read(stop, ROWS)
