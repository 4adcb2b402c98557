"""Group commit: the entries that arrived while the last group was written are the next group.

The writer thread takes entries from a queue, encodes them as one record batch, writes it, and passes it to the
syncer, which announces it as durable or lost, in the order of offsets. A group that could not be written leaves a
gap, which the next group records.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from polycast.log.durable import Durable
from polycast.log.files.columns import SourcedBurst, new_packer
from polycast.log.files.disk import Disk
from polycast.log.files.encoding import EncodedGroup, encode_bursts, encode_rows
from polycast.log.files.folder import HOT, file_name
from polycast.log.files.format import NOT_STORED, BatchEntry, Gap, Layout
from polycast.log.files.hot import HotSegment
from polycast.log.files.state import RESERVE, LogState, write_state
from polycast.log.settings import LogSettings
from polycast.log.write.appender import Appender, UnwrittenGroup
from polycast.log.write.bulk import to_rows
from polycast.log.write.entry import Entry
from polycast.log.write.entry_queue import EntryQueue
from polycast.log.write.syncer import FullSegment, Syncer, WrittenGroup

log = logging.getLogger("polycast.log")

GROUP_BYTES = 2 * 1024 * 1024
"""Larger groups do not stay in the CPU cache between two copies."""
LARGE_BYTES = 512 * 1024
"""To pass such a group to another thread takes less time than to write it."""


class LastGroup(NamedTuple):
    """Its result is not known yet. The checksum and the gap are what the next group follows if it is lost."""

    group: EncodedGroup
    durable: Durable
    checksum: str
    gap: Gap | None


class Writer:
    def __init__(
        self, folder: Path, layout: Layout, settings: LogSettings, state: LogState, gap: Gap | None,
        disk: Disk, on_durable: Callable[[Durable], None], on_roll: Callable[[], None], exact: bool = False,
    ) -> None:  # fmt: skip
        """`exact`: after a group that could not be written, no other is: a node has every row, or stops."""
        self._folder = folder
        self._layout = layout
        self._packers = [new_packer(), new_packer()]
        self._settings = settings
        self._disk = disk
        self._queue = EntryQueue(settings.gather_seconds, GROUP_BYTES)
        self._segment: HotSegment | None = None
        self._end = 0
        """The position of the next group in the segment, if the last one is written."""
        self._last: LastGroup | None = None
        self._next = self._written_next = state.next
        self._segment_began = 0.0
        self.last_error = ""
        """The error of the last group, if any."""
        self._closing = threading.Event()
        self._closing.set()
        self._on_roll = on_roll
        self._exact = exact
        self.syncer = Syncer(settings, on_durable, self._on_closed)
        self._appender = Appender(self.syncer)
        self.closed = state.next
        """Segments before this offset are closed."""
        self.gap = gap
        """A gap that no group records yet."""
        self.state = state
        self.checksum = state.checksum
        """Of the last group."""
        self.groups = self.bytes_written = 0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)

    # -- from the event loop -----------------------------------------------------------------------------

    def start(self) -> None:
        self.syncer.start()
        self._appender.start()
        self._thread.start()

    def put(self, entries: Sequence[Entry]) -> None:
        """They become durable together."""
        self._next = entries[-1].next
        self._queue.put(entries)

    def hurry(self) -> None:
        """Something waits for the entries: they gather no longer."""
        self._queue.hurry()

    def roll(self) -> None:
        """Closes the segment."""
        self._queue.put_now(self._end_segment)

    def reserve(self, count: int, then: Callable[[str], object]) -> None:
        """Reserves offsets, and calls `then` in the writer thread, with an error or an empty text."""

        def act() -> None:
            then(self._extend(count))

        self._queue.put_now(act)

    def close(self) -> None:
        """Returns when every entry that was put is durable or lost."""
        self._queue.put_now(None)
        self._thread.join()
        self._appender.close()
        self.syncer.close()

    @property
    def failed(self) -> str:
        return self.syncer.failed

    @property
    def reserved(self) -> int:
        return self.state.reserved

    @property
    def open_bytes(self) -> int:
        """Written to the segment that is not closed."""
        return self._end if self._segment else 0

    # -- in the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._write_next():
            pass
        self._end_segment()

    def _write_next(self) -> bool:
        """Whether more may follow. While nothing does, no variable keeps a written group in memory."""
        entries, running = self._take()
        for group in _to_groups(entries):
            self._write(group)
        if not self._queue:
            self._finish_last()
        return running

    def _take(self) -> tuple[list[Entry], bool]:
        """The next entries, and whether more may follow."""
        entries: list[Entry] = []
        for item in self._queue.take():
            if item is None:
                return entries, False
            if callable(item):
                item()
            else:
                entries += item
        return entries, True

    def _write(self, entries: list[Entry]) -> None:
        durable = Durable(entries[0].first, entries[-1].next)
        reason = ""
        try:
            group = self._encode(entries)
            if not self._finish_last():
                group = self._encode(entries)  # it follows another group now
        except OSError as error:
            reason = f"{error.strerror or error}"
        except Exception as error:
            log.exception("a group could not be encoded")
            reason = type(error).__name__
        if reason:
            self._finish_last()
            self._lose(durable, reason)
        else:
            self._append(group, durable)

    def _encode(self, entries: list[Entry]) -> EncodedGroup:
        if self.failed:
            raise OSError(errno.EIO, self.failed)
        self._reserve()
        first = entries[0].first
        self._provide_segment(first)
        ids = [
            BatchEntry(entry.batch.batch_id, entry.first, entry.messages, entry.batch.owner, entry.micros)
            for entry in entries
            if entry.batch
        ]
        more = {"gap": self.gap, "batches": ids, "position": entries[-1].position}
        if entries[0].bulk:
            rows = to_rows(entries[0].bulk, entries[0].source, entries[0].micros)
            return encode_rows(rows, self._layout, self.checksum, first, **more)
        bursts = [SourcedBurst(burst, entry.source, entry.micros) for entry in entries for burst in entry.bursts]
        return encode_bursts(bursts, self._packers[0], self._layout, self.checksum, first, self._end, **more)

    def _append(self, group: EncodedGroup, durable: Durable) -> None:
        """A large group by another thread, meanwhile: the other packer is free for the next one."""
        assert self._segment
        self._last = LastGroup(group, durable, self.checksum, self.gap)
        self.checksum, self.gap = group.checksum, None
        self._end += group.size
        unwritten = UnwrittenGroup(self._segment, group.pieces, durable)
        if group.size < LARGE_BYTES:
            self._finish_last(self._appender.append(unwritten))
        else:
            self._appender.put(unwritten)
            self._packers.reverse()

    def _finish_last(self, reason: str | None = None) -> bool:
        """Whether the last group is written: waits for it, unless its result is known."""
        last, self._last = self._last, None
        if last is None:
            return True
        reason = self._appender.result() if reason is None else reason
        if not reason:
            self._count(last.group, last.durable)
            return True
        self.checksum, self.gap = last.checksum, last.gap
        self._end -= last.group.size
        self._note_loss(last.durable, reason)
        return False

    def _count(self, group: EncodedGroup, durable: Durable) -> None:
        self._written_next = durable.next
        self.groups += 1
        self.bytes_written += group.size
        self._report("")

    def _lose(self, durable: Durable, reason: str) -> None:
        self._note_loss(durable, reason)
        self.syncer.put(WrittenGroup(None, durable._replace(reason=reason)))

    def _note_loss(self, durable: Durable, reason: str) -> None:
        if not self.failed:
            self._report(reason)
        self._record_gap(durable.first, durable.next, reason)
        if self._exact:
            self.syncer.failed = self.failed or reason

    def _record_gap(self, first: int, after: int, reason: str) -> None:
        before = self.gap
        if before is None:
            self.gap = Gap(first, after, NOT_STORED + reason)
        else:
            known = before.reason if reason in before.reason else f"{before.reason}; {NOT_STORED}{reason}"
            self.gap = Gap(before.first, after, known)

    def _report(self, reason: str) -> None:
        before, self.last_error = self.last_error, reason
        if bool(reason) != bool(before):
            if reason:
                log.error("%s: messages are not stored: %s; they are delivered, and publishers get an error",
                          self._folder, reason)  # fmt: skip
            else:
                log.warning("%s: messages are stored again", self._folder)

    def _reserve(self) -> None:
        """The reservation is durable before an offset is used."""
        if self._next + RESERVE // 2 > self.state.reserved:
            self._reserve_up_to(self._next + RESERVE)

    def _extend(self, count: int) -> str:
        """An error, or an empty text."""
        try:
            wanted = self._next + count + RESERVE
            if wanted > self.state.reserved:
                self._reserve_up_to(wanted)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _reserve_up_to(self, offset: int) -> None:
        self.write_state(msgspec.structs.replace(self.state, clean=False, reserved=offset))

    def write_state(self, state: LogState) -> None:
        write_state(self._folder, state, self._disk)
        self.state = state

    # -- segments ----------------------------------------------------------------------------------------

    def _provide_segment(self, first: int) -> None:
        if self._segment and self._is_full():
            self._end_segment()
        if self._segment is None:
            self._closing.wait()  # a segment is created only when the one before is durable
            if self.failed:
                raise OSError(errno.EIO, self.failed)
            path = self._folder / file_name(first, HOT)
            segment = HotSegment.create(path, self._layout, self._disk)
            self._end = segment.end  # before other threads see the segment
            self._segment = segment
            self._segment_began = time.monotonic()

    def _is_full(self) -> bool:
        age, limit = time.monotonic() - self._segment_began, self._settings.segment_seconds
        return self._end >= self._settings.segment_bytes or bool(limit and age >= limit)

    def _end_segment(self) -> None:
        self._finish_last()
        if self._segment:
            self._closing = threading.Event()
            self.syncer.put(FullSegment(self._segment, self._written_next, self._closing))
            self._segment = None

    def _on_closed(self, after: int) -> None:
        """After the syncer closed a segment that ends before this offset."""
        self.closed = after
        self._on_roll()


def _to_groups(entries: list[Entry]) -> Iterator[list[Entry]]:
    """A bulk entry is a group of its own."""
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
