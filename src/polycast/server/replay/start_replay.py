"""Subscriptions that begin in the past: at some place in the log, or with the last message of each topic."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from polycast.log.read.seek import first_offset, rows_at, seek_sequences, seek_time
from polycast.log.read.work import Work
from polycast.model import Encoder, Exact, Pattern, StartPosition
from polycast.server.io.connection import Connection
from polycast.server.replay.interest import Wish, Wishes
from polycast.server.replay.replay import Replay

if TYPE_CHECKING:
    from polycast.server.replay.replays import Replays

TOPICS_A_TURN = 2_000
MESSAGE_BYTES = 500
"""What it costs to hand on one message by itself, in bytes that could have been handed on instead."""


class FromReplay(Replay):
    """Subscriptions that begin in the past."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        super().__init__(replays, connection)
        self.wishes = Wishes()
        self._starts: dict[Pattern, StartPosition] = {}
        self._over = False

    def add(self, pattern: Pattern, encoder: Encoder, start: StartPosition) -> None:
        """Wherever it starts, it is not later than now."""
        self._over = False
        self._starts[pattern] = start
        self.wishes.put(pattern, Wish(encoder, self.log.next, start.sequence or 0))

    def drop(self, pattern: Pattern) -> None:
        """Nobody wants it any more."""
        self._starts.pop(pattern, None)
        self.wishes.drop(pattern)
        self._over = not len(self.wishes)

    async def find_start(self) -> int:
        """Only what is on the disk can be looked for."""
        await self.until_durable(self.log.next)
        found = await self.replays.in_turns(self.connection, find_starts(self.log.folder, dict(self._starts)))
        for pattern in self._starts:
            self.wishes.hasten(pattern, found[pattern])
        return self.log.next if self._over else self.wishes.first()

    def wishes_for(self, topic: bytes) -> tuple[Wish, ...]:
        return self.wishes.of(topic)

    def is_over(self) -> bool:
        return self._over or super().is_over()

    def go_live(self) -> None:
        for pattern, wish in self.wishes:
            self.replays.go_live(self.connection, pattern, wish.encoder, self.offset)


class LastReplay(FromReplay):
    """Subscriptions that begin with the last message of each topic."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        super().__init__(replays, connection)
        self._since = self.log.next

    async def find_start(self) -> int:
        for pattern, _ in self.wishes:
            self.wishes.hasten(pattern, 0)
        await self.until_durable(self._since)
        left = await self._offsets()
        while left and not self.is_over():
            old = bisect_left(left, self.log.tail_first)
            if old:
                await self._push_old(left[:old])
            left = left[old:]
            await self.room()
            if left and left[0] >= self.log.tail_first:
                left = left[self._push_recent(left) :]
        return self._since

    async def _push_old(self, offsets: list[int]) -> None:
        """From the disk."""
        rows = rows_at(self.log.folder, offsets)
        while not self.is_over() and (batch := await self.replays.in_thread(self.connection, next, rows, None)):
            await self.push(batch)

    def _push_recent(self, offsets: list[int]) -> int:
        """From memory, up to a piece. Says how many offsets that settles."""
        place = size = 0
        for entry in self.log.tail(offsets[0]):
            for burst in () if self.is_own(entry) else entry.bursts:
                place = max(place, bisect_left(offsets, burst.offset))
                end = burst.offset + len(burst)
                while place < len(offsets) and offsets[place] < end:
                    if size >= self.piece_bytes:
                        return place
                    at = offsets[place] - burst.offset
                    self.push_burst(burst, at, at + 1)
                    size += burst.ends[at] - burst.starts[at] + MESSAGE_BYTES
                    place += 1
            place = max(place, bisect_left(offsets, entry.next))
        return len(offsets)

    async def _offsets(self) -> list[int]:
        """Where the last messages are. Those that came since then come anyway."""
        topics = self.replays.topics
        names = [pattern.value for pattern, _ in self.wishes if isinstance(pattern, Exact)]
        found = {topic.last_offset for name in names if (topic := topics.get(name.encode()))}
        if len(names) < len(self.wishes):
            every = iter(list(topics))
            while piece := list(islice(every, TOPICS_A_TURN)):
                found.update(topic.last_offset for topic in piece if self.wishes_for(topic.name.encode()))
                await asyncio.sleep(0)
        return sorted(offset for offset in found if 0 <= offset < self._since)


def find_starts(folder: Path, starts: dict[Pattern, StartPosition]) -> Work[dict[Pattern, int]]:
    """Where to begin to read for each: what is wanted of those with a sequence may come a little later."""
    sequences = {pattern.value: start.sequence for pattern, start in starts.items() if start.sequence is not None}
    began = (yield from seek_sequences(folder, sequences)) if sequences else 0
    times = {start.seconds for start in starts.values() if start.seconds is not None}
    found: dict[float, int] = {}
    for seconds in times:
        found[seconds] = yield from seek_time(folder, seconds)
    first = first_offset(folder) or 0
    return {
        pattern: began if start.sequence is not None else first if start.seconds is None else found[start.seconds]
        for pattern, start in starts.items()
    }
