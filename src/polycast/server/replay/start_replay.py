"""Subscriptions that begin at a position in the log, or with the last message of each topic."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from itertools import islice
from pathlib import Path

from polycast.log.files.format import Gap
from polycast.log.read.seek import first_offset, is_removed, rows_at, seek_sequences, seek_time
from polycast.log.read.work import Work
from polycast.log.times import to_micros
from polycast.model import Encoder, Exact, Pattern, StartPosition
from polycast.server.io.connection import Connection
from polycast.server.replay.context import ReplayContext
from polycast.server.replay.interest import Interest, Interests
from polycast.server.replay.replay import PATIENCE_SECONDS, Replay
from polycast.server.replay.rows_budget import FIRST_BYTES

TOPICS_A_TURN = 2_000
MESSAGE_BYTES = 500
"""The cost of a message that is queued by itself, in bytes that could have been queued instead."""


class StartReplay(Replay):
    """Subscriptions that begin at a position in the log."""

    def __init__(self, context: ReplayContext, connection: Connection) -> None:
        super().__init__(context, connection)
        self.interests = Interests()
        self._starts: dict[Pattern, StartPosition] = {}
        self._over = False

    def add(self, pattern: Pattern, encoder: Encoder, start: StartPosition) -> None:
        """The position is looked up later; the subscription begins at the end of the log at the latest."""
        self._over = False
        self._starts[pattern] = start
        self.interests.put(pattern, Interest(encoder, self.log.next, start.sequence or 0))

    def drop(self, pattern: Pattern) -> None:
        self._starts.pop(pattern, None)
        self.interests.drop(pattern)
        self._over = not len(self.interests)
        if self._over:
            self.rows_budget.leave(self)

    async def find_start(self) -> int:
        """Positions are looked up in the files, so all messages must be durable first."""
        await self.until_durable(self.log.next)
        found = await self.context.in_turns(self.connection, find_starts(self.log.folder, dict(self._starts)))
        for pattern in self._starts:
            self.interests.start_earlier(pattern, found[pattern])
        return self.log.next if self._over else self.interests.first()

    def interests_for(self, topic: bytes) -> tuple[Interest, ...]:
        return self.interests.of(topic)

    def is_over(self) -> bool:
        return self._over or super().is_over()

    def go_live(self) -> None:
        for pattern, interest in self.interests:
            self.context.go_live(self.connection, pattern, interest.encoder, self.offset)


class LastMessageReplay(StartReplay):
    """Subscriptions that begin with the last message of each topic."""

    def __init__(self, context: ReplayContext, connection: Connection) -> None:
        super().__init__(context, connection)
        self._since = self.log.next

    async def find_start(self) -> int:
        for pattern, _ in self.interests:
            self.interests.start_earlier(pattern, 0)
        await self.until_durable(self._since)
        left = await self._offsets()
        while left and not self.is_over():
            old = bisect_left(left, self.log.tail_first)
            if old:
                await self._push_old(left[:old])
            left = left[old:]
            await self.wait_for_room()
            if left and left[0] >= self.log.tail_first:
                left = left[self._push_recent(left) :]
        return self._since

    async def _push_old(self, offsets: list[int]) -> None:
        while offsets and not self.is_over():
            await self.rows_budget.acquire(self)
            try:
                offsets = await self._push_turn(offsets)
            finally:
                self.rows_budget.release(self)
            await self.wait_for_room()

    async def _push_turn(self, offsets: list[int]) -> list[int]:
        """Reads and queues messages while the connection has room. Returns the rest: it is read again later, and
        takes no memory until then."""
        missed: list[Gap] = []
        rows = rows_at(self.log.folder, offsets, on_skipped=missed.append)
        while not self.is_over():
            batch = await self.context.read_rows(self.connection, next, rows, None)
            while missed:
                self.report(missed.pop(0))
            if batch is None:
                return []
            self.rows_budget.resize(self, FIRST_BYTES + batch.get_total_buffer_size())
            done = await self.push(batch, PATIENCE_SECONDS)
            if done < batch.num_rows:
                return offsets[bisect_left(offsets, batch["offset"][done].as_py()) :]
            if self.rows_budget.is_turn_over(self):
                return offsets[bisect_right(offsets, batch["offset"][-1].as_py()) :]
        return []

    def _push_recent(self, offsets: list[int]) -> int:
        """Queues messages from memory, up to a piece. Returns how many of the offsets are done."""
        done = size = 0
        for entry in self.log.tail(offsets[0]):
            for burst in () if self.is_own(entry) else entry.bursts:
                done = max(done, bisect_left(offsets, burst.offset))
                stop = burst.offset + len(burst)
                while done < len(offsets) and offsets[done] < stop:
                    if size >= self.piece_bytes:
                        return done
                    at = offsets[done] - burst.offset
                    self.push_burst(burst, at, at + 1)
                    size += burst.ends[at] - burst.starts[at] + MESSAGE_BYTES
                    done += 1
            done = max(done, bisect_left(offsets, entry.next))
        return len(offsets)

    async def _offsets(self) -> list[int]:
        """The offsets of the last messages. Messages published since then are replayed in any case."""
        topics = self.context.topics
        names = [pattern.value for pattern, _ in self.interests if isinstance(pattern, Exact)]
        found = {topic.last_offset for name in names if (topic := topics.get(name.encode()))}
        if len(names) < len(self.interests):
            every = iter(list(topics))
            while piece := list(islice(every, TOPICS_A_TURN)):
                found.update(topic.last_offset for topic in piece if self.interests_for(topic.name.encode()))
                await asyncio.sleep(0)
        return sorted(offset for offset in found if 0 <= offset < self._since)


def find_starts(folder: Path, starts: dict[Pattern, StartPosition]) -> Work[dict[Pattern, int]]:
    """Where to begin to read for each pattern; for a sequence, its message may come a little later."""
    sequences = {pattern.value: start.sequence for pattern, start in starts.items() if start.sequence is not None}
    began = (yield from seek_sequences(folder, sequences)) if sequences else 0
    times = {start.seconds for start in starts.values() if start.seconds is not None}
    found: dict[float, int] = {}
    for seconds in times:
        found[seconds] = yield from seek_time(folder, seconds)
        if is_removed(folder, micros=to_micros(seconds)):
            found[seconds] = 0  # reading from there reports what is missing
    if sequences and is_removed(folder, sequences=sequences):
        began = 0
    first = first_offset(folder) or 0

    def find(start: StartPosition) -> int:
        if start.sequence is not None:
            return began
        if start.seconds is not None:
            return found[start.seconds]
        return first if start.offset is None else start.offset

    return {pattern: find(start) for pattern, start in starts.items()}
