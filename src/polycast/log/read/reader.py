"""Reads the log from an offset on, across segments, while it is written, sealed and shortened.

Rows come as they were written, in the order of offsets, each offset once. Missing messages are skipped and
reported, before the rows behind them are returned: in the log file, and in `skipped`. An open file stays readable
after its name is gone. A missing name means that the segment was sealed or removed: the folder is listed again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment, segments
from polycast.log.files.format import REMOVED, Gap
from polycast.log.files.hot import GroupPosition
from polycast.log.files.quarantine import read_lost
from polycast.log.read.gaps import MISSING, covering
from polycast.log.read.segment_sources import Source, UnreadableSource, open_source

log = logging.getLogger("polycast.log")

READ_ROWS = 8192
LAST_OFFSET = 2**63 - 1


class Reader:
    """`offset` is the next offset to read. Not thread-safe."""

    def __init__(self, folder: Path, offset: int, columns: Sequence[str] | None = None) -> None:
        self.folder = folder
        self.offset = offset
        self.skipped: list[Gap] = []
        """Offsets whose messages are missing, and why: damaged, removed or not durable."""
        self._columns = columns
        self._read_columns = ["offset", *(name for name in columns if name != "offset")] if columns else None
        self._source: Source | None = None
        self._batch: pa.RecordBatch | None = None
        self._position: GroupPosition | None = None
        self._reported = ""

    def read(self, stop: int | None = None, rows: int = READ_ROWS) -> pa.RecordBatch | None:
        """The next rows before the offset `stop`, at most `rows`. None if there are none at present."""
        while self._batch is not None or self._load():
            found = self._cut(stop, rows)
            if self._batch is not None or found is not None:
                return found
        return None

    def seek(self, offset: int, position: GroupPosition | None = None) -> None:
        """Skips to a later offset. A known position saves the search for it."""
        self.offset = max(self.offset, offset)
        self._position = position
        if self._source and self._batch is None and self._is_far(self._source):
            self.close()

    def finish(self, stop: int) -> None:
        """To be called when no rows are left before the offset `stop`: messages may be missing before it."""
        if self._batch is not None or self.offset >= stop:
            return
        recorded = [*(self._source.gaps if self._source else ()), *read_lost(self.folder)]
        gap = next((gap for gap in recorded if gap.missed and gap.first <= self.offset < gap.next), None)
        if gap:
            self._skip_to(min(gap.next, stop), gap.reason)
        elif self._reported:
            self._skip_to(stop, self._reported)

    def close(self) -> None:
        """Closes the file. The next `read` opens it again."""
        if self._source:
            self._source.close()
        self._source = self._batch = None

    # -- rows --------------------------------------------------------------------------------------------

    def _cut(self, stop: int | None, rows: int) -> pa.RecordBatch | None:
        batch = self._batch
        assert batch is not None
        offsets = _numbers(batch["offset"])
        begin = bisect_left(offsets, self.offset)
        if begin < len(offsets):
            self._pass_gap(offsets[begin])
        end = min(len(offsets), begin + rows, bisect_left(offsets, self._next_gap()))
        if stop is not None:
            end = min(end, bisect_left(offsets, stop))
        if begin == len(offsets):
            self._batch = None
        if begin >= end:
            return None
        self.offset = offsets[end - 1] + 1
        if end == len(offsets):
            self._batch = None
        found = batch.slice(begin, end - begin)
        return found.select(self._columns) if self._columns else found

    def _load(self) -> bool:
        """Loads rows from this segment or the next one. False if there are none at present."""
        while source := self._source or self._open():
            batch = self._pull(source)
            if batch is None:
                following = self._following(source)
                if following is None:
                    self._reopen_later(source)
                    return False
                batch = self._pull(source)  # rows that were appended before the next segment began
                if batch is None and source.next < following.first and source.skip():
                    self._skip_to(source.next, f"{source.segment.path}: groups follow behind zeros")
                    continue
                if batch is None:
                    self._leave(source, following)
                    continue
            self._take(batch)
            return True
        return False

    def _pull(self, source: Source) -> pa.RecordBatch | None:
        while True:
            try:
                return source.read(self.offset)
            except LogDamageError as error:
                reason = str(error)
            if not source.skip():
                self._report(reason)
                return None
            self._skip_to(source.next, reason)

    def _take(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._reported = ""

    def _pass_gap(self, first: int) -> None:
        """From the offset to the first row behind it."""
        source = self._source
        if first > self.offset and source:
            known = covering(source.gaps, self.offset, first)
            if known is None or known.missed:
                self._skip_to(first, known.reason if known else self._why_missing(source, first))
            self.offset = first

    def _next_gap(self) -> int:
        """Rows before and behind missing messages are returned separately."""
        gaps = self._source.gaps if self._source else ()
        return min((gap.first for gap in gaps if gap.first > self.offset and gap.missed), default=LAST_OFFSET)

    def _why_missing(self, source: Source, after: int) -> str:
        if known := covering(read_lost(self.folder), self.offset, after):
            return known.reason
        older = any(segment.first < source.segment.first for segment in segments(self.folder))
        return MISSING if older else REMOVED

    # -- segments ----------------------------------------------------------------------------------------

    def _open(self) -> Source | None:
        while found := segments(self.folder):
            index = bisect_right([segment.first for segment in found], self.offset)
            try:
                self._source = self._open_segment(found[max(0, index - 1)])
            except FileNotFoundError:
                continue
            return self._source
        return None

    def _following(self, source: Source) -> Segment | None:
        found = self._next_segment(source)
        if found and found.first > source.next:
            # A listing that runs during a rename may miss the file under both names.
            found = self._next_segment(source)
        return found

    def _next_segment(self, source: Source) -> Segment | None:
        return next((found for found in segments(self.folder) if found.first > source.segment.first), None)

    def _leave(self, source: Source, following: Segment) -> None:
        if self._reported:
            self._skip_to(following.first, self._reported)
        source.close()
        try:
            self._source = self._open_segment(following)
        except FileNotFoundError:
            self._source = None

    def _open_segment(self, segment: Segment) -> Source:
        position = self._position if self._position and self._position.segment == segment.first else None
        return open_source(segment, self._read_columns, position)

    def _reopen_later(self, source: Source) -> None:
        """At the end of the log. An unreadable segment may be repaired meanwhile."""
        if isinstance(source, UnreadableSource):
            self._source = None

    def _is_far(self, source: Source) -> bool:
        following = self._next_segment(source)
        return following is not None and following.first <= self.offset

    # -- unreadable offsets ------------------------------------------------------------------------------

    def _skip_to(self, after: int, reason: str) -> None:
        """Skips to that offset, and reports the offsets before it."""
        self._reported = ""
        if after > self.offset:
            self.skipped.append(Gap(self.offset, after, reason))
            level = logging.WARNING if reason == REMOVED else logging.ERROR
            log.log(level, "offsets %s to %s cannot be read: %s", f"{self.offset:,}", f"{after - 1:,}", reason)
            self.offset = after

    def _report(self, reason: str) -> None:
        if reason != self._reported:
            log.error("%s", reason)
        self._reported = reason


def _numbers(array: pa.Array) -> memoryview:
    values = memoryview(array.buffers()[1]).cast("B").cast("q")
    return values[array.offset : array.offset + len(array)]
