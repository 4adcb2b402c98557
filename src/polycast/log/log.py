"""The log as the broker sees it: what is appended, what is settled, what is remembered.

All of this runs in the thread of the event loop and waits for nothing; the writer and the keeper have threads of
their own. `open` and `close` do wait.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from polycast.errors import StartError
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import clear_snapshots, log_of, make
from polycast.log.files.format import MICROS, SCHEMA, Layout
from polycast.log.files.snapshot import Snapshot, to_topics, trimmed, write_snapshot
from polycast.log.files.state import Lock, State, write_state
from polycast.log.repair.recovery import Recovered, recover
from polycast.log.settings import LogSettings
from polycast.log.upkeep.housekeeping import Keeper
from polycast.log.upkeep.snapshots import Snapshots
from polycast.log.write.batch_ids import BatchIds, trim_batches
from polycast.log.write.bulk import Numbered, size_of
from polycast.log.write.outcome import Settled
from polycast.log.write.writer import GROUP_BYTES, RESERVE, ROW_BYTES, Begun, Entry, Writer
from polycast.model import BatchKey, Burst

log = logging.getLogger("polycast.log")

TAIL_BYTES = 16 * 1024 * 1024
"""What of the settled messages stays in memory, for those who have nearly caught up."""

NAMES = 3
"""Under how many names one message may be kept: its own, and two that a mesh gives it."""

Row = tuple[str, int, int]
"""A topic, its next sequence, and the offset of its last message."""


class Log:
    def __init__(
        self, folder: Path, settings: LogSettings, recovered: Recovered, lock: Lock, topics: int, disk: Disk
    ) -> None:
        state = recovered.state
        self.folder = folder
        self.settings = settings
        self._disk = disk
        self._lock = lock
        self._topics = topics
        self._seed = int(state.seed, 16)
        self._micros = state.micros
        self._on_settled: Callable[[Settled], object] = lambda settled: None
        self.recovered = self._trim(recovered.snapshot)
        """What was there when it was opened."""
        self.next = self.settled = state.next
        """Everything before `settled` is kept, or never will be."""
        self.pending_bytes = 0
        self._bulk_bytes = 0
        """What of that came in bulk; those who brought it wait for it, and nobody else should."""
        self.messages_lost = 0
        self.batches = BatchIds(self.recovered.batches, settings.batch_ids, settings.batch_id_seconds)
        self._unsettled: deque[Entry] = deque()
        self._recent: deque[Entry] = deque()
        self._recent_bytes = 0
        self._bulk_end = 0
        """What came in bulk lies before this offset, and is not for those who look into the memory."""
        begun = Begun(self._begin(state), recovered.gap)
        layout = Layout.of(SCHEMA, self._seed)
        self.writer = Writer(folder, layout, settings, begun, disk, self._tell, self._rolled)
        snapshots = Snapshots(folder, self.recovered, self._trim, disk)
        self.keeper = Keeper(
            folder,
            settings,
            closed=lambda: self.writer.closed,
            roll=self.writer.roll,
            snapshot=lambda: snapshots.catch_up(self._seed),
            disk=disk,
        )

    @classmethod
    def open(cls, settings: LogSettings, topics: int, disk: Disk = DISK) -> Log:
        """Makes sure, before anybody is told that anything is kept, that it can be."""
        folder = log_of(settings.data)
        try:
            make(folder, disk)
            lock = Lock(folder)
            try:
                return cls(folder, settings, recover(folder, disk), lock, topics, disk)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            hint = "--data DIR takes another folder, --no-log keeps nothing"
            raise StartError(f"cannot keep a log in {folder}: {error.strerror}", hint) from error

    def start(self, on_settled: Callable[[Settled], object]) -> None:
        """`on_settled` is called in a thread of the log."""
        self._on_settled = on_settled
        self.writer.start()
        self.keeper.start()

    # -- appending ---------------------------------------------------------------------------------------

    def has_room(self, count: int) -> bool:
        """Whether so many may be handed out, each under as many names as there are."""
        return self.has_offsets(NAMES * count)

    def has_offsets(self, count: int) -> bool:
        return self.next + count <= self.writer.reserved

    def make_room(self, count: int, then: Callable[[str], object]) -> None:
        """For so many offsets. `then` is called in a thread of the log, with what is wrong.

        Others may take of them meanwhile: `has_offsets` tells.
        """
        self.writer.reserve(count, then)

    def is_behind(self, share: float = 1.0) -> bool:
        return self.pending_bytes - self._bulk_bytes > self.settings.pending_bytes * share

    def trouble(self) -> str:
        """Why what comes now would not be kept, as far as anybody knows; an empty text if it would."""
        if self.writer.failed:
            return self.writer.failed
        reason = self.writer.refusing
        if not reason or (reason == os.strerror(errno.ENOSPC) and self._disk.room(self.folder) >= GROUP_BYTES):
            return ""
        return f"messages are not stored: {reason}"

    def free_bytes(self) -> int:
        """On the file system of the log; 0 where nobody can tell."""
        try:
            return self._disk.room(self.folder)
        except OSError:
            return 0

    def warning(self) -> str:
        """What goes wrong without harm for what comes now; an empty text if nothing does."""
        return self.keeper.warning

    def append(
        self, bursts: list[Burst], source: str, now: float, batch: BatchKey | None = None, count: int = 0
    ) -> None:
        """`count` is how many messages the batch has, where they are one."""
        self._micros = max(self._micros, int(now * MICROS))
        size = sum([len(burst.block) + ROW_BYTES * len(burst) for burst in bursts])
        first, self.next = bursts[0].offset, bursts[-1].offset + len(bursts[-1])
        self._put(Entry(bursts, source.encode(), self._micros, first, self.next, size, batch, count))

    def append_bulk(self, numbered: Numbered, source: str, now: float, batch: BatchKey) -> None:
        """It goes to the disk alone: who wants it waits until it is settled, and reads it there."""
        self._micros = max(self._micros, int(now * MICROS))
        size = size_of([numbered.bulk.columns]) + ROW_BYTES * len(numbered)
        first, self.next = numbered.offset, numbered.offset + len(numbered)
        self._bulk_end = self.next
        self._bulk_bytes += size
        count = len(numbered)
        self._put(Entry([], source.encode(), self._micros, first, self.next, size, batch, count, numbered))

    def _put(self, entry: Entry) -> None:
        if entry.batch:
            self.batches.add(entry.batch, entry.first, entry.messages, entry.micros)
        self._unsettled.append(entry)
        self.pending_bytes += entry.size
        self.writer.put(entry)

    def settle(self, settled: Settled) -> None:
        """To be called in the event loop with what `on_settled` was told, in its order."""
        self.settled = settled.next
        self.messages_lost += settled.next - settled.first if settled.reason else 0
        while self._unsettled and self._unsettled[0].next <= settled.next:
            entry = self._unsettled.popleft()
            self.pending_bytes -= entry.size
            self._bulk_bytes -= entry.size if entry.bulk else 0
            if settled.reason and entry.batch:
                self.batches.forget(entry.batch)
            if settled.reason and self.settings.delivery == "committed":
                continue  # nobody ever gets it
            if entry.bulk:
                self._recent.clear()
                self._recent_bytes = 0
                continue
            self._recent.append(entry)
            self._recent_bytes += entry.size
        while self._recent and self._recent_bytes > TAIL_BYTES:
            self._recent_bytes -= self._recent.popleft().size

    # -- what is still in memory -------------------------------------------------------------------------

    @property
    def tail_first(self) -> int:
        """From this offset on everything is in memory."""
        oldest = self._recent or self._unsettled
        return max(oldest[0].first, self._bulk_end) if oldest else self.next

    def tail(self, offset: int) -> Iterator[Entry]:
        """What is in memory from this offset on."""
        found: list[Entry] = []
        for entry in chain(reversed(self._unsettled), reversed(self._recent)):
            if entry.next <= offset:
                break
            found.append(entry)
        return reversed(found)

    # -- begin and end -----------------------------------------------------------------------------------

    def _begin(self, state: State) -> State:
        """From here on a stop is not clean unless `close` says so."""
        write_snapshot(self.folder, self.recovered, self._seed, self._disk)
        begun = State(
            seed=state.seed, clean=False, next=state.next, reserved=state.next + RESERVE,
            checksum=state.checksum, micros=state.micros,
        )  # fmt: skip
        write_state(self.folder, begun, self._disk)
        clear_snapshots(self.folder, state.next)
        return begun

    def close(self, topics: Iterable[Row], floor: int) -> None:
        """Everything that was appended is settled, and the next start need not read it."""
        self.keeper.stop()
        self.writer.close()
        try:
            if not self.writer.failed:
                self._write_end(topics, floor)
        except OSError as error:
            log.error("%s: the next start will read the end of the log: %s", self.folder, error)
        finally:
            self._lock.release()

    def _write_end(self, topics: Iterable[Row], floor: int) -> None:
        snapshot = Snapshot(self.next, to_topics(topics), floor, self.batches.to_table())
        write_snapshot(self.folder, snapshot, self._seed, self._disk)
        state = State(
            seed=f"{self._seed:016x}", clean=True, next=self.next, reserved=self.next,
            checksum=self.writer.checksum, micros=self._micros, gap=self.writer.gap,
        )  # fmt: skip
        write_state(self.folder, state, self._disk)

    def _trim(self, snapshot: Snapshot) -> Snapshot:
        settings = self.settings
        batches = trim_batches(snapshot.batches, settings.batch_ids, settings.batch_id_seconds, self._micros)
        return trimmed(snapshot, self._topics)._replace(batches=batches)

    def _tell(self, settled: Settled) -> None:
        self._on_settled(settled)

    def _rolled(self) -> None:
        self.keeper.wake()
