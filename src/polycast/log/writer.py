"""Group commit: whatever arrived while the last group was on its way to the disk is the next one.

A thread of its own takes what the event loop puts into a queue, makes one record batch of it, writes it and, as
far as the settings say so, waits until the disk has it. Then all of it is settled, in the order of its offsets:
kept, or not, and why. A group that could not be written leaves a gap, which is on record in the next one. After a
failed sync nobody knows what is on the disk: nothing is written any more until the broker starts again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from polycast.log.columns import Piece, to_batch
from polycast.log.disk import Disk
from polycast.log.folder import HOT, name_of
from polycast.log.format import Gap, Layout, to_message
from polycast.log.hot import HotSegment
from polycast.log.settings import LogSettings
from polycast.log.state import State, write_state
from polycast.model import Burst

log = logging.getLogger("polycast.log")

GROUP_BYTES = 16 * 1024 * 1024
RESERVE = 1 << 22
"""How many offsets are reserved at a time; as many may be skipped after a stop that was not clean."""
ROW_BYTES = 96
"""About what a message takes besides its topic and payload."""


class Entry(NamedTuple):
    """What is kept together: bursts that were numbered one after the other."""

    bursts: list[Burst]
    source: bytes
    micros: int
    first: int
    next: int
    size: int
    batch_id: str = ""


class Settled(NamedTuple):
    """These offsets are kept, or else `reason` says why they are not."""

    first: int
    next: int
    reason: str = ""


class Begun(NamedTuple):
    """Where the log goes on."""

    state: State
    gap: Gap | None = None


class Writer:
    def __init__(
        self, folder: Path, layout: Layout, settings: LogSettings, begun: Begun, disk: Disk,
        on_settled: Callable[[Settled], None], on_roll: Callable[[], None],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._layout = layout
        self._settings = settings
        self._disk = disk
        self._on_settled = on_settled
        self._on_roll = on_roll
        self._queue: SimpleQueue[Entry | Callable[[], None] | None] = SimpleQueue()
        self._waiting: Entry | Callable[[], None] | None = None
        self._segment: HotSegment | None = None
        self._handed_out = self._kept = self._closed = begun.state.next
        self._segment_began = 0.0
        self.gap = begun.gap
        self._synced = 0.0
        self._dirty = False
        self._full = False
        self.state = begun.state
        """As it is on disk; `checksum` and `micros` are ahead of it."""
        self.checksum = begun.state.checksum
        self.micros = begun.state.micros
        self.failed = ""
        """Why nothing is written any more."""
        self.groups = self.bytes_written = self.messages_lost = 0
        self.sync_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)

    # -- from the event loop -----------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def put(self, entry: Entry) -> None:
        self._handed_out = entry.next
        self._queue.put(entry)

    def roll(self) -> None:
        """Asks for the segment to end here."""
        self._queue.put(self._roll)

    def close(self) -> None:
        """Everything that was put is settled when this returns."""
        self._queue.put(None)
        self._thread.join()

    @property
    def closed(self) -> int:
        """Segments that begin before this offset are written to no more."""
        return self._closed

    @property
    def reserved(self) -> int:
        return self.state.reserved

    # -- in the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        running = True
        while running:
            entries, running = self._take()
            if entries:
                self._settle(entries)
            self._sync_in_time()
        self._end_segment()

    def _take(self) -> tuple[list[Entry], bool]:
        """The next group, and whether there may be more."""
        entries: list[Entry] = []
        size = 0
        while size < GROUP_BYTES:
            try:
                found = self._queue.get(block=not entries, timeout=self._patience())
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

    def _patience(self) -> float | None:
        """How long to wait for more before there is something else to do."""
        if self._settings.sync != "interval" or not self._dirty:
            return None
        return max(0.0, self._synced + self._settings.sync_seconds - time.monotonic())

    def _settle(self, entries: list[Entry]) -> None:
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
        self._on_settled(Settled(first, after, reason))

    def _keep(self, entries: list[Entry], first: int) -> None:
        segment = self._segment_for(first)
        batch = to_batch([Piece(burst, entry.source, entry.micros) for entry in entries for burst in entry.bursts])
        ids = [(entry.batch_id, entry.first, entry.next - entry.first) for entry in entries if entry.batch_id]
        message = to_message(batch, self._layout, self.checksum, first, gap=self.gap, batches=ids)
        segment.append(message.data)
        self.checksum, self.micros, self.gap = message.checksum, entries[-1].micros, None
        self._kept = entries[-1].next
        self.groups += 1
        self.bytes_written += len(message.data)
        self._dirty = True
        if self._settings.sync == "always":
            self._sync(segment)

    def _sync(self, segment: HotSegment) -> None:
        began = time.monotonic()
        try:
            segment.sync()
        except OSError as error:
            self._fail(segment, error)
            raise OSError(error.errno, self.failed) from error
        self._synced = time.monotonic()
        self.sync_seconds += self._synced - began
        self._dirty = False

    def _fail(self, segment: HotSegment, error: OSError) -> None:
        self.failed = f"the disk failed to sync: {error.strerror}; nothing is kept until the broker starts again"
        log.critical("%s: %s", segment.path, self.failed)

    def _sync_in_time(self) -> None:
        due = self._settings.sync == "interval" and self._dirty and self._patience() == 0.0
        if due and self._segment and not self.failed:
            with contextlib.suppress(OSError):  # it has been said, and every group from here on says it again
                self._sync(self._segment)

    def _lose(self, first: int, after: int, reason: str) -> None:
        self.messages_lost += after - first
        before = self.gap
        if before is None:
            self.gap = Gap(first, after, f"not stored: {reason}")
        else:
            known = before.reason if reason in before.reason else f"{before.reason}; not stored: {reason}"
            self.gap = Gap(before.first, after, known)

    def _report(self, reason: str) -> None:
        if bool(reason) != self._full:
            self._full = bool(reason)
            if reason:
                log.error("%s: messages are not stored: %s; they are delivered, and publishers are told",
                          self._folder, reason)  # fmt: skip
            else:
                log.warning("%s: messages are stored again", self._folder)

    def _reserve(self) -> None:
        """The disk knows of every offset before it is handed out."""
        if self._handed_out + RESERVE // 2 <= self.state.reserved:
            return
        state = State(
            seed=self.state.seed, clean=False, next=self.state.next, reserved=self._handed_out + RESERVE,
        )  # fmt: skip
        write_state(self._folder, state, self._disk)
        self.state = state

    # -- segments ----------------------------------------------------------------------------------------

    def _segment_for(self, first: int) -> HotSegment:
        if self._segment and self._is_full(self._segment):
            self._roll()
        if self.failed:
            raise OSError(errno.EIO, self.failed)
        if self._segment is None:
            self._closed = first
            path = self._folder / name_of(first, HOT)
            self._segment = HotSegment.create(path, self._layout, self._disk)
            self._segment_began = time.monotonic()
        return self._segment

    def _is_full(self, segment: HotSegment) -> bool:
        age, limit = time.monotonic() - self._segment_began, self._settings.segment_seconds
        return segment.end >= self._settings.segment_bytes or bool(limit and age >= limit)

    def _roll(self) -> None:
        self._end_segment()
        self._on_roll()

    def _end_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None or self.failed:
            return
        try:
            segment.close()
        except OSError as error:
            self._fail(segment, error)
            return
        self._closed = self._kept
        self._dirty = False
