"""The log as the broker uses it: append, durability announcements, recent messages in memory.

Methods run in the thread of the event loop and do not block, except `open` and `close`. The writer, the syncer and
housekeeping have threads of their own. The log announces each range of offsets once, in order, in the event loop.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from polycast.errors import StartError
from polycast.log.batch_ids import BatchIds
from polycast.log.durable import Durable
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import check_restored, log_folder, make_folder, remove_old_snapshots
from polycast.log.files.format import NOT_STORED, SCHEMA, Gap, Layout, StreamPosition
from polycast.log.files.snapshot import (
    Snapshot,
    batch_rows,
    to_batches,
    to_topics,
    trim_batches,
    trim_topics,
    write_snapshot,
)
from polycast.log.files.state import RESERVE, FolderLock, LogState, log_id, write_state
from polycast.log.repair.recovery import Recovered, recover
from polycast.log.settings import LogSettings
from polycast.log.upkeep.housekeeping import Housekeeping
from polycast.log.upkeep.snapshots import SnapshotWriter
from polycast.log.write.bulk import Bulk, NumberedBulk, total_bytes
from polycast.log.write.entry import ROW_BYTES, Entry
from polycast.log.write.writer import GROUP_BYTES, Writer
from polycast.model import BatchKey, Burst

log = logging.getLogger("polycast.log")

ID_DIGITS = 16
TAIL_BYTES = 16 * 1024 * 1024
"""Durable messages that stay in memory, for replays that have nearly caught up."""
ENTRY_BYTES = 2048
"""About the memory of the objects of an entry, in addition to its messages. Where messages come one at a time, it
is most of the memory; to grow by it, and to collect garbage among so many objects, would stop the event loop for
tens of milliseconds."""

NAMES_PER_MESSAGE = 3
"""A message may be logged under its own name, and under two names of a mesh."""

Listener = Callable[[Durable], None]
Post = Callable[[Callable[[], object]], object]
"""Runs a callable in the thread of the event loop that owns the log."""

Row = tuple[str, int, int]
"""A topic, its next sequence, and the offset of its last message."""


class Log:
    def __init__(
        self, folder: Path, settings: LogSettings, recovered: Recovered, lock: FolderLock, topics: int, disk: Disk,
        exact: bool = False,
    ) -> None:  # fmt: skip
        state = recovered.state
        self.folder = folder
        self.settings = settings
        self._disk = disk
        self._lock = lock
        self._found = state
        self.position = recovered.snapshot.position
        """The position of a node in the stream, as far as it is in the log."""
        self._together: list[Entry] | None = None
        """Entries of the message of the stream that is being applied."""
        self._hurried = False
        """Whether something waits for these entries."""
        self._topics = topics
        self._seed = int(state.seed, 16)
        self.id = log_id(state.seed)
        """Log id. Offsets are valid for one log id only."""
        self.micros = state.micros
        """The time of the last message. Times never go back: the caller of `append` sees to that."""
        self._post: Post = lambda callback: None
        self._listeners: list[Listener] = []
        self.recovered = self._trim(recovered.snapshot)
        """The snapshot at the start."""
        self.next = self.durable_next = state.next
        """All messages before `durable_next` are durable or lost."""
        self.pending_bytes = 0
        self._bulk_bytes = 0
        """Bytes of bulk batches in `pending_bytes`; they delay only their own publishers."""
        self.messages_lost = 0
        self.lost = recovered.gap
        """Lost messages that no durable group records yet: they end at `durable_next`."""
        self.batches = BatchIds(settings.batch_ids, settings.batch_id_seconds, batch_rows(self.recovered.batches))
        self._pending: deque[Entry] = deque()
        self._recent: deque[Entry] = deque()
        self._recent_bytes = 0
        self._bulk_end = 0
        """Bulk batches lie before this offset. They are not in memory."""
        layout = Layout.of(SCHEMA, self._seed)
        self.writer = Writer(
            folder, layout, settings, self._begin(state), recovered.gap, disk, self._announce, self._rolled,
            exact,
        )  # fmt: skip
        snapshots = SnapshotWriter(folder, self.recovered, self._trim, disk)
        self.housekeeping = Housekeeping(
            folder,
            settings,
            closed=lambda: self.writer.closed,
            roll=self.writer.roll,
            snapshot=lambda waits: snapshots.catch_up(self._seed, waits),
            disk=disk,
            open_bytes=lambda: self.writer.open_bytes,
            bytes_written=lambda: self.writer.bytes_written,
            shared=exact,
        )

    @classmethod
    def open(
        cls, settings: LogSettings, topics: int, disk: Disk = DISK, exact: bool = False, seed: str = ""
    ) -> Log:
        """Raises StartError if the log cannot be written.

        `exact`: for a node of a cluster. `seed`: for a new log.
        """
        folder = log_folder(settings.data)
        check_restored(folder)
        try:
            make_folder(folder, disk)
            lock = FolderLock(folder)
            try:
                return cls(folder, settings, recover(folder, disk, exact, seed), lock, topics, disk, exact)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            hint = "--data DIR uses another folder, --no-log runs without a log"
            raise StartError(f"cannot write a log in {folder}: {error.strerror}", hint) from error

    def on_durable(self, listener: Listener) -> None:
        """Listeners are called in the order of registration, after the state of the log has changed."""
        self._listeners.append(listener)

    def start(self, post: Post) -> None:
        """`post` is called in threads of the log."""
        self._post = post
        self.writer.start()
        self.housekeeping.start()

    # -- appending ---------------------------------------------------------------------------------------

    def has_room(self, count: int) -> bool:
        """Whether offsets are reserved for so many messages, each under all its names."""
        return self.has_offsets(NAMES_PER_MESSAGE * count)

    def has_offsets(self, count: int) -> bool:
        return self.next + count <= self.writer.reserved

    def reserve_offsets(self, count: int, then: Callable[[str], object]) -> None:
        """Calls `then` in the event loop, with an error or an empty text.

        Other publishers may use the offsets first: check `has_offsets` again.
        """
        self.writer.reserve(count, lambda error: self._post(lambda: then(error)))

    def hurry(self) -> None:
        """Something waits until all messages so far are durable."""
        self._hurried = self._together is not None
        self.writer.hurry()

    def is_behind(self, share: float = 1.0) -> bool:
        return self.pending_bytes - self._bulk_bytes > self.settings.pending_bytes * share

    def write_error(self) -> str:
        """Why new messages would not become durable, as far as known; otherwise an empty text."""
        if self.writer.failed:
            return self.writer.failed
        reason = self.writer.last_error
        if not reason or (
            reason == os.strerror(errno.ENOSPC) and self._disk.free_bytes(self.folder) >= GROUP_BYTES
        ):
            return ""
        return f"messages are not stored: {reason}"

    def free_bytes(self) -> int:
        """On the file system of the log; 0 if unknown."""
        try:
            return self._disk.free_bytes(self.folder)
        except OSError:
            return 0

    def warnings(self) -> list[str]:
        """Problems that do not affect new messages."""
        return self.housekeeping.warnings()

    def note_missed(self, gap: Gap) -> None:
        """In any thread: a reader skipped messages. Damage is salvaged."""
        if gap.damaged and not gap.recorded:
            self.housekeeping.note_damage(gap)

    def append(
        self, bursts: Sequence[Burst], source: str, micros: int, batch: BatchKey | None = None, count: int = 0
    ) -> None:
        """`count` is the number of messages of the batch."""
        self.micros = micros
        size = sum([burst.span_bytes() + ROW_BYTES * len(burst) for burst in bursts])
        size += len(batch.batch_id) + len(batch.owner) if batch else 0
        first, self.next = bursts[0].offset, bursts[-1].offset + len(bursts[-1])
        self._put(Entry(bursts, source.encode(), micros, first, self.next, size, batch, count))

    def append_bulk(
        self, bulk: Bulk, first: int, sequences: list[int], source: str, micros: int, batch: BatchKey
    ) -> None:
        """A bulk batch goes to the disk only: subscribers read it there once it is durable."""
        self.micros = micros
        numbered = NumberedBulk(bulk, first, sequences)
        size = total_bytes([numbered.bulk.columns]) + ROW_BYTES * len(numbered)
        self.next = first + len(numbered)
        self._bulk_end = self.next
        self._bulk_bytes += size
        count = len(numbered)
        self._put(Entry([], source.encode(), micros, first, self.next, size, batch, count, numbered))

    def _put(self, entry: Entry) -> None:
        self._pending.append(entry)
        self.pending_bytes += entry.size
        if self._together is None:
            self.writer.put((entry,))
        else:
            self._together.append(entry)

    @property
    def seed(self) -> str:
        """Seed of the checksums; the same for all nodes of a cluster."""
        return f"{self._seed:016x}"

    @property
    def checksum(self) -> str:
        """Checksum of the last group."""
        return self.writer.checksum

    # -- in a cluster ------------------------------------------------------------------------------------

    def join_stream(self, position: StreamPosition) -> None:
        """The log belongs to this stream from now on, at this position. To be called before `start`."""
        self.position = position
        self.recovered = self.recovered._replace(position=position)
        self.writer.write_state(msgspec.structs.replace(self.writer.state, position=position))

    def begin_together(self) -> None:
        """Begins an atomic append: all entries up to `end_together` become durable together."""
        self._together = []

    def end_together(self, position: Callable[[], StreamPosition]) -> None:
        """Without new rows, the position stays: after a restart the node applies the same messages again."""
        entries, self._together = self._together, None
        if entries:
            self.position = position()
            entries[-1] = entries[-1]._replace(position=self.position)
            self.writer.put(entries)
            if self._hurried:
                self.writer.hurry()
        self._hurried = False

    def _announce(self, durable: Durable) -> None:
        """In the thread of the syncer."""
        self._post(lambda: self._advance(durable))

    def _advance(self, durable: Durable) -> None:
        self._update(durable)
        for listener in self._listeners:
            listener(durable)

    def _update(self, durable: Durable) -> None:
        self.durable_next = durable.next
        self.lost = _extend(self.lost, durable) if durable.reason else None
        self.messages_lost += durable.next - durable.first if durable.reason else 0
        while self._pending and self._pending[0].next <= durable.next:
            entry = self._pending.popleft()
            self.pending_bytes -= entry.size
            self._bulk_bytes -= entry.size if entry.bulk else 0
            if durable.reason and entry.batch:
                self.batches.forget(entry.batch)
            if durable.reason:
                entry = entry._replace(lost=True)
            if entry.bulk:
                self._recent.clear()
                self._recent_bytes = 0
                continue
            self._recent.append(entry)
            self._recent_bytes += entry.size + ENTRY_BYTES
        while self._recent and self._recent_bytes > TAIL_BYTES:
            self._recent_bytes -= self._recent.popleft().size + ENTRY_BYTES

    # -- recent messages in memory -----------------------------------------------------------------------

    @property
    def tail_first(self) -> int:
        """All messages from this offset on are in memory."""
        oldest = self._recent or self._pending
        return max(oldest[0].first, self._bulk_end) if oldest else self.next

    def tail(self, offset: int) -> Iterator[Entry]:
        """The entries in memory from this offset on."""
        found: list[Entry] = []
        for entry in chain(reversed(self._pending), reversed(self._recent)):
            if entry.next <= offset:
                break
            found.append(entry)
        return reversed(found)

    # -- start and stop ----------------------------------------------------------------------------------

    def _begin(self, state: LogState) -> LogState:
        """From now on a stop is unclean, until `close`."""
        write_snapshot(self.folder, self.recovered, self._seed, self._disk)
        started = LogState(
            seed=state.seed, clean=False, next=state.next, reserved=state.next + RESERVE,
            checksum=state.checksum, micros=state.micros, position=self.position,
        )  # fmt: skip
        write_state(self.folder, started, self._disk)
        remove_old_snapshots(self.folder, state.next)
        return started

    def close(self, topics: Iterable[Row], floor: int) -> None:
        """A clean stop: all messages are durable or lost, and the next start need not read them."""
        self.housekeeping.stop()
        self.writer.close()
        try:
            if not self.writer.failed:
                self._write_clean_state(topics, floor)
        except OSError as error:
            log.error("%s: the next start reads the end of the log: %s", self.folder, error)
        finally:
            self._lock.release()

    def release(self) -> None:
        """Instead of `close`, for a log that was opened and not used: its folder stays as it was."""
        write_state(self.folder, self._found, self._disk)
        self._lock.release()

    def _write_clean_state(self, topics: Iterable[Row], floor: int) -> None:
        snapshot = Snapshot(self.next, to_topics(topics), floor, to_batches(self.batches.rows()))
        write_snapshot(self.folder, snapshot, self._seed, self._disk)
        state = LogState(
            seed=f"{self._seed:016x}", clean=True, next=self.next, reserved=self.next,
            checksum=self.writer.checksum, micros=self.micros, gap=self.writer.gap,
            position=self.position,
        )  # fmt: skip
        write_state(self.folder, state, self._disk)

    def _trim(self, snapshot: Snapshot) -> Snapshot:
        settings = self.settings
        batches = trim_batches(snapshot.batches, settings.batch_ids, settings.batch_id_seconds)
        return trim_topics(snapshot, self._topics)._replace(batches=batches)

    def _rolled(self) -> None:
        self.housekeeping.wake()


def _extend(lost: Gap | None, durable: Durable) -> Gap:
    """Lost messages, and those of this range behind them."""
    reason = lost.reason if lost and lost.refused else NOT_STORED + durable.reason
    return Gap(lost.first if lost else durable.first, durable.next, reason)
