"""Replay: subscribers that are served from the log until they have caught up with what is live.

A replay reads the log in a thread, a piece at a time, and hands on no more than its connection takes. What the
log still has in memory comes from there. When nothing is left, the subscription becomes live, in the same turn
of the event loop: nothing is missed and nothing comes twice.

    from    a subscription that begins somewhere in the past, or with the last message of each topic
    spill   a connection that fell behind: all of its subscriptions, from the first message it did not get
"""

from __future__ import annotations

import asyncio
import logging
import math
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.places import begin_of_sequences, find_time, first_offset, rows_at
from polycast.log.reader import Reader
from polycast.log.rows import to_bursts
from polycast.log.writer import Entry
from polycast.model import Burst, Exact, Form, Pattern, Slices, Start
from polycast.routing import Audience
from polycast.server.connection import Connection
from polycast.server.silent import SILENT
from polycast.server.wishes import TOPICS_AT_MOST, Wish, Wishes

if TYPE_CHECKING:
    from polycast.server.replays import Replays

log = logging.getLogger("polycast.replay")

AHEAD_BYTES = 1024 * 1024
"""A connection with more than this to take gets no more from the log for now; nor is more handed on at once."""
AHEAD_SHARE = 4
"""The same as a part of `limits.queue_bytes`, where that is less: the rest is for what is live."""
ROWS = 4096
"""How many messages are read at a time."""
TOPICS_A_TURN = 2_000
SHORTEST_WAIT, LONGEST_WAIT = 0.0005, 0.05
PATIENCE_SECONDS = 0.25
"""Who takes nothing for so long need not have what was read for it kept in memory."""


class Replay:
    """One connection's way from some offset to now."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        self._replays = replays
        self.connection = connection
        self._log = replays.log
        self._piece_bytes = min(AHEAD_BYTES, connection.port.queue_bytes // AHEAD_SHARE)
        self._own = None if connection.port.role.echo else connection.name
        """What this connection said by itself does not come back to it."""
        self._offset = -1
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
        return self.connection.closing

    # -- what all do -------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            self._offset = await self.find_start()
            while not self.is_over():
                if self._offset >= self._log.tail_first:
                    await self._room()
                    if not self.is_over() and self._offset >= self._log.tail_first and self._push_tail():
                        self.go_live()
                        return
                else:
                    await self._push_piece()
        finally:
            if self._reader:
                self._reader.close()

    async def settled(self, offset: int) -> None:
        """Whatever was published before is on the disk, or never will be."""
        while self._log.settled < offset and not self.is_over():
            await asyncio.sleep(SHORTEST_WAIT)

    async def _room(self, patience: float = math.inf) -> bool:
        """Waits, ever less often, until the connection has taken most of what it was given; others come first."""
        wait, waited = SHORTEST_WAIT, 0.0
        await asyncio.sleep(0)
        while not self.is_over() and self.connection.queued() > self._piece_bytes:
            if waited > patience:
                return False
            await asyncio.sleep(wait)
            waited += wait
            wait = min(2 * wait, LONGEST_WAIT)
        return True

    async def _push_piece(self) -> None:
        """From the disk."""
        await self._room()
        if self._reader is None:
            self._reader = Reader(self._log.folder, self._offset)
        stop = self._log.settled
        batch = await self._replays.in_thread(_read, self._reader, self._offset, stop)
        if batch is None:
            self._offset = stop
            return
        self._offset = self._reader.offset
        done = await self.push(batch, PATIENCE_SECONDS)
        if done < batch.num_rows:
            self._offset = batch["offset"][done].as_py()
            self._reader.close()
            self._reader = None

    async def push(self, batch: pa.RecordBatch, patience: float = math.inf) -> int:
        """In several turns what is large. Says how many rows the connection had the time to take."""
        rows = max(1, batch.num_rows * self._piece_bytes // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            if not await self._room(patience) or self.is_over():
                return start
            for burst in to_bursts(self._without_own(batch.slice(start, rows))):
                self._push_burst(burst, 0, len(burst))
        return int(batch.num_rows)

    def _without_own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A broker that ran before may have had a connection of the same name."""
        if self._own is None:
            return batch
        before = pc.less(batch["offset"], self._replays.first)
        return batch.filter(pc.or_(before, pc.not_equal(batch["source"], self._own)))

    def _push_burst(self, burst: Burst, start: int, stop: int) -> None:
        parts: list[tuple[Form, Slices]] = []
        for run, first, last in burst.runs([(start, stop)]):
            wishes = self.wishes_for(burst.topics[run])
            begin = min([wish.begin(burst, run, first) for wish in wishes], default=last)
            if begin < last:
                form = wishes[0].form
                if not parts or parts[-1][0] is not form:
                    parts.append((form, []))
                _add(parts[-1][1], begin, last)
        for form, slices in parts:
            self.connection.feed(form.encode(burst, slices), sum(end - begin for begin, end in slices))

    def _push_tail(self) -> bool:
        """From memory. Whether that was all there is."""
        size = 0
        for entry in self._log.tail(self._offset):
            if self._replays.committed and entry.next > self._log.settled:
                break
            if not self._is_own(entry):
                for burst in entry.bursts:
                    size += self._push_more(burst, size)
                    if self._offset < burst.offset + len(burst):
                        return False
            self._offset = entry.next
        return True

    def _is_own(self, entry: Entry) -> bool:
        return self._own is not None and entry.source == self._own.encode()

    def _push_more(self, burst: Burst, size: int) -> int:
        """As much of a burst as still fits into a piece of which there is so much. Says how much that was."""
        start, count = max(0, self._offset - burst.offset), len(burst)
        each = max(1, len(burst.block) // count)
        stop = min(count, start + max(1, self._piece_bytes // each))
        if start >= count or size >= self._piece_bytes:
            return 0
        self._push_burst(burst, start, stop)
        self._offset = burst.offset + stop
        return each * (stop - start)


def _add(slices: Slices, first: int, last: int) -> None:
    if slices and slices[-1][1] == first:
        slices[-1] = (slices[-1][0], last)
    else:
        slices.append((first, last))


class FromReplay(Replay):
    """Subscriptions that begin in the past."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        super().__init__(replays, connection)
        self.wishes = Wishes()
        self._starts: dict[Pattern, Start] = {}
        self._over = False

    def add(self, pattern: Pattern, form: Form, start: Start) -> None:
        """Wherever it starts, it is not later than now."""
        self._over = False
        self._starts[pattern] = start
        self.wishes.put(pattern, Wish(form, self._log.next, start.sequence or 0))

    def drop(self, pattern: Pattern) -> None:
        """Nobody wants it any more."""
        self._starts.pop(pattern, None)
        self.wishes.drop(pattern)
        self._over = not len(self.wishes)

    async def find_start(self) -> int:
        """Only what is on the disk can be looked for."""
        await self.settled(self._log.next)
        found = await self._replays.in_thread(find_starts, self._log.folder, dict(self._starts))
        for pattern in self._starts:
            self.wishes.hasten(pattern, found[pattern])
        return self._log.next if self._over else self.wishes.first()

    def wishes_for(self, topic: bytes) -> tuple[Wish, ...]:
        return self.wishes.of(topic)

    def is_over(self) -> bool:
        return self.connection.closing or self._over

    def go_live(self) -> None:
        for pattern, wish in self.wishes:
            self._replays.go_live(self.connection, pattern, wish.form, self._offset)


class LastReplay(FromReplay):
    """Subscriptions that begin with the last message of each topic."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        super().__init__(replays, connection)
        self._since = self._log.next

    async def find_start(self) -> int:
        for pattern, _ in self.wishes:
            self.wishes.hasten(pattern, 0)
        await self.settled(self._since)
        rows = rows_at(self._log.folder, await self._offsets())
        while not self.is_over() and (batch := await self._replays.in_thread(next, rows, None)):
            await self.push(batch)
        return self._since

    async def _offsets(self) -> list[int]:
        """Where the last messages are. Those that came since then come anyway."""
        topics = self._replays.topics
        names = [pattern.value for pattern, _ in self.wishes if isinstance(pattern, Exact)]
        found = {topic.last_offset for name in names if (topic := topics.get(name.encode()))}
        if len(names) < len(self.wishes):
            every = iter(list(topics))
            while piece := list(islice(every, TOPICS_A_TURN)):
                found.update(topic.last_offset for topic in piece if self.wishes_for(topic.name.encode()))
                await asyncio.sleep(0)
        return sorted(offset for offset in found if 0 <= offset < self._since)


class SpillReplay(Replay):
    """All subscriptions of a connection that fell behind."""

    def __init__(self, replays: Replays, connection: Connection, offset: int) -> None:
        super().__init__(replays, connection)
        self._first = offset
        self._known: dict[bytes, tuple[Audience, tuple[Wish, ...]]] = {}
        self._made: dict[Pattern, int] = {}
        """Subscriptions that were made since then, and at which offset."""
        self._served: dict[Pattern, int] = {}
        """Those that another replay has served up to some offset."""

    def note_made(self, pattern: Pattern) -> None:
        self._made[pattern] = self._log.next
        self._known.clear()

    def note_served(self, pattern: Pattern, offset: int) -> None:
        self._served[pattern] = offset
        self._known.clear()

    async def find_start(self) -> int:
        log.warning("%s: too slow for what is live; served from the log", self.connection)
        return self._first

    def wishes_for(self, topic: bytes) -> tuple[Wish, ...]:
        audience = self._replays.audience(topic)
        known = self._known.get(topic)
        if known is None or known[0] is not audience:
            if len(self._known) >= TOPICS_AT_MOST:
                self._known.clear()
            known = self._known[topic] = audience, self._find(topic, audience)
        return known[1]

    def _find(self, topic: bytes, audience: Audience) -> tuple[Wish, ...]:
        mine = self.connection.subscriber
        form = next((form for form, members in audience.groups if mine in members), SILENT)
        if form is SILENT:
            return ()
        if not self._made and not self._served:
            return (Wish(form),)
        matching = [pattern for pattern in mine.patterns if pattern.matches(topic.decode())]
        made = min(self._made.get(pattern, 0) for pattern in matching)
        return (Wish(form, max(made, *(self._served.get(pattern, 0) for pattern in matching))),)

    def go_live(self) -> None:
        self.connection.spilled = False
        log.info("%s: caught up", self.connection)


def find_starts(folder: Path, starts: dict[Pattern, Start]) -> dict[Pattern, int]:
    """Where to begin to read for each: what is wanted of those with a sequence may come a little later."""
    sequences = {pattern.value: start.sequence for pattern, start in starts.items() if start.sequence is not None}
    began = begin_of_sequences(folder, sequences) if sequences else 0
    times = {start.seconds for start in starts.values() if start.seconds is not None}
    found = {seconds: find_time(folder, seconds) for seconds in times}
    first = first_offset(folder) or 0
    return {
        pattern: began if start.sequence is not None else first if start.seconds is None else found[start.seconds]
        for pattern, start in starts.items()
    }


def _read(reader: Reader, offset: int, stop: int) -> pa.RecordBatch | None:
    reader.seek(offset)
    return reader.read(stop, ROWS)
