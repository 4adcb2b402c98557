"""Group commit: whatever arrived while the last group was on its way to the disk is the next one.

A thread of its own takes what the event loop puts into a queue, makes one record batch of it, writes it, and
hands it to the syncer, which reports it durable or lost, in the order of offsets. A group that could not be
written leaves a gap, which the next group records.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pyarrow as pa

from polycast.log.durable import Durable
from polycast.log.files.columns import SourcedBurst, to_batch
from polycast.log.files.disk import Disk
from polycast.log.files.folder import HOT, file_name
from polycast.log.files.format import BatchEntry, Gap, Layout, encode_group, encode_large_group
from polycast.log.files.hot import HotSegment
from polycast.log.files.state import RESERVE, LogState, write_state
from polycast.log.settings import LogSettings
from polycast.log.write.bulk import to_rows
from polycast.log.write.entry import Entry
from polycast.log.write.syncer import FullSegment, Syncer, WrittenGroup

log = logging.getLogger("polycast.log")

GROUP_BYTES = 2 * 1024 * 1024
"""What is larger does not stay in the processor's cache from one copy to the next."""


class Writer:
    def __init__(
        self, folder: Path, layout: Layout, settings: LogSettings, state: LogState, gap: Gap | None,
        disk: Disk, on_durable: Callable[[Durable], None], on_roll: Callable[[], None],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._layout = layout
        self._settings = settings
        self._disk = disk
        self._queue: SimpleQueue[Entry | Callable[[], None] | None] = SimpleQueue()
        self._segment: HotSegment | None = None
        self._handed_out = self._kept = state.next
        self._segment_began = 0.0
        self.refusing = ""
        """Why the last group could not be written."""
        self._closing = threading.Event()
        self._closing.set()
        self._on_roll = on_roll
        self.syncer = Syncer(settings, on_durable, self._ended)
        self.closed = state.next
        """Segments that begin before this offset are written to no more."""
        self.gap = gap
        """What was lost and is not on record yet."""
        self.state = state
        self.checksum = state.checksum
        """Of the last group."""
        self.groups = self.bytes_written = 0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)

    # -- from the event loop -----------------------------------------------------------------------------

    def start(self) -> None:
        self.syncer.start()
        self._thread.start()

    def put(self, entry: Entry) -> None:
        self._handed_out = entry.next
        self._queue.put(entry)

    def roll(self) -> None:
        """Asks for the segment to end here."""
        self._queue.put(self._end_segment)

    def reserve(self, count: int, then: Callable[[str], object]) -> None:
        """Makes room for so many more offsets; `then` is called in the thread, with why it could not."""

        def act() -> None:
            then(self._extend(count))

        self._queue.put(act)

    def close(self) -> None:
        """Returns when every entry that was put is durable or lost."""
        self._queue.put(None)
        self._thread.join()
        self.syncer.close()

    @property
    def failed(self) -> str:
        return self.syncer.failed

    @property
    def reserved(self) -> int:
        return self.state.reserved

    # -- in the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        running = True
        while running:
            entries, running = self._take()
            for group in _to_groups(entries):
                self._write(group)
        self._end_segment()

    def _take(self) -> tuple[list[Entry], bool]:
        """The next group, and whether there may be more."""
        entries: list[Entry] = []
        size = 0
        while size < GROUP_BYTES:
            try:
                found = self._queue.get(block=not entries)
            except Empty:
                break
            if isinstance(found, Entry):
                entries.append(found)
                size += found.size
            elif found is None:
                return entries, False
            else:
                found()
        return entries, True

    def _write(self, entries: list[Entry]) -> None:
        first, after = entries[0].first, entries[-1].next
        reason = self.failed
        if not reason:
            try:
                self._reserve()
                self._keep(entries, first)
            except OSError as error:
                reason = f"{error.strerror or error}"
            except Exception as error:
                log.exception("a group could not be written")
                reason = f"{type(error).__name__}"
            self._report(reason)
        if reason:
            self._lose(first, after, reason)
        self.syncer.put(WrittenGroup(None if reason else self._segment, Durable(first, after, reason)))

    def _keep(self, entries: list[Entry], first: int) -> None:
        segment = self._segment_for(first)
        batch = _to_batch(entries)
        ids = [
            BatchEntry(entry.batch.batch_id, entry.first, entry.messages, entry.batch.owner)
            for entry in entries
            if entry.batch
        ]
        write = encode_large_group if entries[0].bulk else encode_group
        message = write(batch, self._layout, self.checksum, first, gap=self.gap, batches=ids)
        segment.append(message.pieces)
        self.checksum, self.gap = message.checksum, None
        self._kept = entries[-1].next
        self.groups += 1
        self.bytes_written += message.size

    def _lose(self, first: int, after: int, reason: str) -> None:
        before = self.gap
        if before is None:
            self.gap = Gap(first, after, f"not stored: {reason}")
        else:
            known = before.reason if reason in before.reason else f"{before.reason}; not stored: {reason}"
            self.gap = Gap(before.first, after, known)

    def _report(self, reason: str) -> None:
        before, self.refusing = self.refusing, reason
        if bool(reason) != bool(before):
            if reason:
                log.error("%s: messages are not stored: %s; they are delivered, and publishers are told",
                          self._folder, reason)  # fmt: skip
            else:
                log.warning("%s: messages are stored again", self._folder)

    def _reserve(self) -> None:
        """The disk knows of every offset before it is handed out."""
        if self._handed_out + RESERVE // 2 > self.state.reserved:
            self._reserve_up_to(self._handed_out + RESERVE)

    def _extend(self, count: int) -> str:
        """Why there is no room for so many; an empty text if there is."""
        try:
            wanted = self._handed_out + count + RESERVE
            if wanted > self.state.reserved:
                self._reserve_up_to(wanted)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _reserve_up_to(self, offset: int) -> None:
        state = LogState(seed=self.state.seed, clean=False, next=self.state.next, reserved=offset)
        write_state(self._folder, state, self._disk)
        self.state = state

    # -- segments ----------------------------------------------------------------------------------------

    def _segment_for(self, first: int) -> HotSegment:
        if self._segment and self._is_full(self._segment):
            self._end_segment()
        if self._segment is None:
            self._closing.wait()  # whatever lies in a later segment, all before it is safe
            if self.failed:
                raise OSError(errno.EIO, self.failed)
            path = self._folder / file_name(first, HOT)
            self._segment = HotSegment.create(path, self._layout, self._disk)
            self._segment_began = time.monotonic()
        return self._segment

    def _is_full(self, segment: HotSegment) -> bool:
        age, limit = time.monotonic() - self._segment_began, self._settings.segment_seconds
        return segment.end >= self._settings.segment_bytes or bool(limit and age >= limit)

    def _end_segment(self) -> None:
        if self._segment:
            self._closing = threading.Event()
            self.syncer.put(FullSegment(self._segment, self._kept, self._closing))
            self._segment = None

    def _ended(self, after: int) -> None:
        """The syncer has closed a segment that ends before this offset."""
        self.closed = after
        self._on_roll()


def _to_groups(entries: list[Entry]) -> Iterator[list[Entry]]:
    """As they come, but what comes in bulk is one by itself."""
    group: list[Entry] = []
    for entry in entries:
        if entry.bulk and group:
            yield group
            group = []
        group.append(entry)
        if entry.bulk:
            yield group
            group = []
    if group:
        yield group


def _to_batch(entries: list[Entry]) -> pa.RecordBatch:
    first = entries[0]
    if first.bulk:
        return to_rows(first.bulk, first.source, first.micros)
    return to_batch(
        [SourcedBurst(burst, entry.source, entry.micros) for entry in entries for burst in entry.bursts]
    )
