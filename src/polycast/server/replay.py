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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.log import Log
from polycast.log.places import find_sequence, find_time, first_offset, rows_at
from polycast.log.reader import Reader
from polycast.log.rows import to_bursts
from polycast.log.writer import Entry
from polycast.model import Burst, Form, Pattern, Slices, Start
from polycast.routing import Audience, Topic
from polycast.server.connection import Connection
from polycast.server.silent import SILENT

if TYPE_CHECKING:
    from polycast.server.exchange import Exchange

log = logging.getLogger("polycast.replay")

T = TypeVar("T")

AHEAD_BYTES = 1024 * 1024
"""A connection with more than this to take gets no more from the log for now."""
ROWS = 4096
"""How many messages are handed on in one turn."""
PIECE_BYTES = 1024 * 1024
"""How much of what is in memory is handed on in one turn."""
TOPICS_A_TURN = 20_000
SHORTEST_WAIT, LONGEST_WAIT = 0.0005, 0.05
THREADS = 2


class Wish(NamedTuple):
    """In which form messages are wanted, and from which offset on."""

    form: Form
    since: int = 0


class Replay:
    """One connection's way from some offset to now."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        self._replays = replays
        self.connection = connection
        self._log = replays.log
        self._offset = -1
        self._reader: Reader | None = None

    # -- what kinds differ in ----------------------------------------------------------------------------

    async def find_start(self) -> int:
        raise NotImplementedError

    def wish_for(self, topic: bytes) -> Wish | None:
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

    async def _room(self) -> None:
        """Waits, ever less often, until the connection has taken most of what it was given."""
        wait = SHORTEST_WAIT
        enough = min(AHEAD_BYTES, self.connection.port.queue_bytes // 4)
        while not self.is_over() and self.connection.queued() > enough:
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _push_piece(self) -> None:
        """From the disk."""
        if self._reader is None:
            self._reader = Reader(self._log.folder, self._offset)
        stop = self._log.settled
        batch = await self._replays.in_thread(_read, self._reader, self._offset, stop)
        if batch is None:
            self._offset = stop
            return
        self._offset = self._reader.offset
        await self.push(batch)

    async def push(self, batch: pa.RecordBatch) -> None:
        """What is large goes in several turns."""
        rows = max(1, batch.num_rows * PIECE_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            await self._room()
            if self.is_over():
                return
            for burst in to_bursts(self._without_own(batch.slice(start, rows))):
                self._push_burst(burst)

    def _without_own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.connection.port.role.echo:
            return batch
        return batch.filter(pc.not_equal(batch["source"], self.connection.name))

    def _push_burst(self, burst: Burst, start: int = 0) -> None:
        forms: dict[Form, Slices] = {}
        for run, first, last in burst.runs([(start, len(burst))]):
            wish = self.wish_for(burst.topics[run])
            if wish and (begin := max(first, wish.since - burst.offset)) < last:
                _add(forms.setdefault(wish.form, []), begin, last)
        for form, slices in forms.items():
            self.connection.feed(form.encode(burst, slices), sum(stop - begin for begin, stop in slices))

    def _push_tail(self) -> bool:
        """From memory. Whether that was all there is."""
        size = 0
        for entry in self._log.tail(self._offset):
            if size >= PIECE_BYTES:
                return False
            if self._replays.committed and entry.next > self._log.settled:
                break
            size += entry.size
            self._push_entry(entry)
            self._offset = entry.next
        return True

    def _push_entry(self, entry: Entry) -> None:
        own = entry.source == self.connection.name.encode() and not self.connection.port.role.echo
        for burst in entry.bursts if not own else ():
            if burst.offset + len(burst) > self._offset:
                self._push_burst(burst, max(0, self._offset - burst.offset))


def _add(slices: Slices, first: int, last: int) -> None:
    if slices and slices[-1][1] == first:
        slices[-1] = (slices[-1][0], last)
    else:
        slices.append((first, last))


class FromReplay(Replay):
    """Subscriptions that begin in the past."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        super().__init__(replays, connection)
        self._starts: dict[Pattern, tuple[Form, Start]] = {}
        self._wishes: dict[Pattern, Wish] = {}
        self._found: dict[bytes, Wish | None] = {}

    def add(self, pattern: Pattern, form: Form, start: Start) -> None:
        self._starts[pattern] = (form, start)

    def change(self, pattern: Pattern, form: Form) -> None:
        """It is wanted in another form from here on."""
        if pattern in self._starts:
            self._starts[pattern] = (form, self._starts[pattern][1])
        if pattern in self._wishes:
            self._wishes[pattern] = self._wishes[pattern]._replace(form=form)
            self._found.clear()

    async def find_start(self) -> int:
        await self.settled(self._log.next)
        for pattern, (_, start) in list(self._starts.items()):
            since = await self._replays.in_thread(find_start, self._log.folder, pattern, start)
            form, _ = self._starts[pattern]
            self._wishes[pattern] = Wish(form, self._log.next if since is None else since)
        return min(wish.since for wish in self._wishes.values())

    def wish_for(self, topic: bytes) -> Wish | None:
        if topic not in self._found:
            if len(self._found) > TOPICS_A_TURN:
                self._found.clear()
            name = topic.decode()
            wishes = [wish for pattern, wish in self._wishes.items() if pattern.matches(name)]
            self._found[topic] = min(wishes, key=_since, default=None)
        return self._found[topic]

    def is_over(self) -> bool:
        """Or nobody wants it any more."""
        if self.connection.closing:
            return True
        patterns = self.connection.subscriber.patterns
        gone = [pattern for pattern in self._wishes if patterns.get(pattern) is not SILENT]
        if gone:
            self._found.clear()
        for pattern in gone:
            del self._wishes[pattern]
        return bool(gone) and not self._wishes

    def go_live(self) -> None:
        for pattern, wish in self._wishes.items():
            self._replays.subscribe(self.connection, pattern, wish.form)


class LastReplay(FromReplay):
    """Subscriptions that begin with the last message of each topic."""

    def __init__(self, replays: Replays, connection: Connection) -> None:
        super().__init__(replays, connection)
        self._since = self._log.next

    async def find_start(self) -> int:
        self._wishes = {pattern: Wish(form) for pattern, (form, _) in self._starts.items()}
        await self.settled(self._since)
        rows = rows_at(self._log.folder, await self._offsets())
        while not self.is_over() and (batch := await self._replays.in_thread(next, rows, None)):
            await self.push(batch)
        return self._since

    async def _offsets(self) -> list[int]:
        """Where the last messages are. Those that came since then come anyway."""
        found: list[int] = []
        topics = iter(self._replays.topics())
        while piece := list(islice(topics, TOPICS_A_TURN)):
            found += [
                topic.last_offset
                for topic in piece
                if 0 <= topic.last_offset < self._since and self.wish_for(topic.name.encode())
            ]
            await asyncio.sleep(0)
        return sorted(found)


class SpillReplay(Replay):
    """All subscriptions of a connection that fell behind."""

    def __init__(self, replays: Replays, connection: Connection, offset: int) -> None:
        super().__init__(replays, connection)
        self._first = offset
        self._known: dict[bytes, tuple[Audience, Wish | None]] = {}

    async def find_start(self) -> int:
        log.warning("%s: too slow for what is live; served from the log", self.connection)
        return self._first

    def wish_for(self, topic: bytes) -> Wish | None:
        audience = self._replays.audience(topic)
        known = self._known.get(topic)
        if known is None or known[0] is not audience:
            if len(self._known) > TOPICS_A_TURN:
                self._known.clear()
            known = self._known[topic] = audience, _wish_in(audience, self.connection)
        return known[1]

    def go_live(self) -> None:
        self.connection.spilled = False
        log.info("%s: caught up", self.connection)


class Replays:
    """All that are under way."""

    def __init__(self, exchange: Exchange, log: Log) -> None:
        self._exchange = exchange
        self.log = log
        self.committed = log.settings.delivery == "committed"
        self._pool = ThreadPoolExecutor(THREADS, "log-reader")
        self._tasks: dict[asyncio.Task[None], Replay] = {}
        self._begun: dict[Connection, FromReplay] = {}
        """Those to which more may be added in this turn."""
        self.spills = 0

    @property
    def count(self) -> int:
        return len(self._tasks)

    def begin(self, connection: Connection, pattern: Pattern, form: Form, start: Start | None) -> None:
        """Without a start: with the last message of each topic."""
        replay = self._begun.get(connection)
        if replay is None:
            replay = FromReplay(self, connection) if start else LastReplay(self, connection)
            self._begun[connection] = replay
            asyncio.get_running_loop().call_soon(self._begin, connection)
        replay.add(pattern, form, start or Start())
        self.subscribe(connection, pattern, SILENT)

    def change(self, connection: Connection, pattern: Pattern, form: Form) -> bool:
        """Another form for what is being served from the log; False where that is not the case."""
        if connection.subscriber.patterns.get(pattern) is not SILENT:
            return False
        for replay in (*self._tasks.values(), *self._begun.values()):
            if isinstance(replay, FromReplay) and replay.connection is connection:
                replay.change(pattern, form)
        return True

    def spill(self, connection: Connection, offset: int) -> None:
        self.spills += 1
        self._run(SpillReplay(self, connection, offset))

    def subscribe(self, connection: Connection, pattern: Pattern, form: Form) -> None:
        self._exchange.hub.subscribe(connection.subscriber, pattern, form)

    def audience(self, topic: bytes) -> Audience:
        return self._exchange.hub.router.topic(topic).audience

    def topics(self) -> list[Topic]:
        return list(self._exchange.hub.router.topics)

    async def in_thread(self, act: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, act, *args)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pool.shutdown()

    def _begin(self, connection: Connection) -> None:
        self._run(self._begun.pop(connection))

    def _run(self, replay: Replay) -> None:
        task = asyncio.get_running_loop().create_task(replay.run())
        self._tasks[task] = replay
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()):
            log.error("a replay failed", exc_info=error)


def find_start(folder: Path, pattern: Pattern, start: Start) -> int | None:
    """The offset at which it begins; None: with what comes next."""
    if start.sequence is not None:
        return find_sequence(folder, pattern.value, start.sequence)
    if start.seconds is not None:
        return find_time(folder, start.seconds)
    return first_offset(folder)


def _read(reader: Reader, offset: int, stop: int) -> pa.RecordBatch | None:
    reader.seek(offset)
    return reader.read(stop, ROWS)


def _since(wish: Wish) -> int:
    return wish.since


def _wish_in(audience: Audience, connection: Connection) -> Wish | None:
    for form, subscribers in audience.groups:
        if connection.subscriber in subscribers:
            return None if form is SILENT else Wish(form)
    return None
