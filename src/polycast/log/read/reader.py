"""Reads the log from an offset on, over all its segments, while it is written, sealed and shortened.

What it gives is what was written, row by row, in the order of the offsets, each offset once. What cannot be read
is passed over, and said: in the log file, and in `skipped`. An open file stays readable when its name goes. A name
that is gone means that the segment was sealed meanwhile, or removed, and the folder is looked at again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment, segments
from polycast.log.files.format import Gap
from polycast.log.files.hot import GroupPosition
from polycast.log.files.quarantine import read_lost
from polycast.log.read.segment_sources import Source, UnreadableSource, open_source

log = logging.getLogger("polycast.log")

READ_ROWS = 8192
REMOVED = "removed by retention"
MISSING = "no segment holds them"


class Reader:
    """`offset` is that of the next row, as far as that is known. Not for several threads at a time."""

    def __init__(self, folder: Path, offset: int, columns: Sequence[str] | None = None) -> None:
        self.folder = folder
        self.offset = offset
        self.skipped: list[Gap] = []
        """What should have been there and was not, and why. Gaps on record are none of these."""
        self._columns = columns
        self._read_columns = ["offset", *(name for name in columns if name != "offset")] if columns else None
        self._source: Source | None = None
        self._batch: pa.RecordBatch | None = None
        self._position: GroupPosition | None = None
        self._told = ""

    def read(self, stop: int | None = None, rows: int = READ_ROWS) -> pa.RecordBatch | None:
        """The next rows before the offset `stop`: so many at most. None if there are none, as it is now."""
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

    def close(self) -> None:
        """It can go on after that, and begins with opening what it needs."""
        if self._source:
            self._source.close()
        self._source = self._batch = None

    # -- rows --------------------------------------------------------------------------------------------

    def _cut(self, stop: int | None, rows: int) -> pa.RecordBatch | None:
        batch = self._batch
        assert batch is not None
        offsets = _numbers(batch["offset"])
        begin = bisect_left(offsets, self.offset)
        end = min(len(offsets), begin + rows)
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
        """Gets rows from the segment, or from the next one. False if there are none, as it is now."""
        while source := self._source or self._open():
            batch = self._pull(source)
            if batch is None:
                following = self._following(source)
                if following is None:
                    self._wait(source)
                    return False
                batch = self._pull(source)  # what came before it was left
                if batch is None and source.next < following.first and source.skip():
                    self._miss(source.next, f"{source.segment.path}: groups follow behind nothing")
                    continue
                if batch is None:
                    self._leave(source, following)
                    continue
            self._take(source, batch)
            return True
        return False

    def _pull(self, source: Source) -> pa.RecordBatch | None:
        while True:
            try:
                return source.read(self.offset)
            except LogDamageError as error:
                reason = str(error)
            if not source.skip():
                self._tell(reason)
                return None
            self._miss(source.next, reason)

    def _take(self, source: Source, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._told = ""
        first = batch["offset"][0].as_py()
        if first > self.offset:
            if not covering(source.gaps, self.offset, first):
                self._miss(first, self._why_missing(source, first))
            self.offset = first

    def _why_missing(self, source: Source, after: int) -> str:
        if known := covering(read_lost(self.folder), self.offset, after):
            return known.reason
        older = any(segment.first < source.segment.first for segment in segments(self.folder))
        return MISSING if older else REMOVED

    # -- segments ----------------------------------------------------------------------------------------

    def _open(self) -> Source | None:
        while found := segments(self.folder):
            place = bisect_right([segment.first for segment in found], self.offset)
            try:
                self._source = self._open_segment(found[max(0, place - 1)])
            except FileNotFoundError:
                continue
            return self._source
        return None

    def _following(self, source: Source) -> Segment | None:
        found = self._next_segment(source)
        if found and found.first > source.next:
            # A folder that is listed while files in it get other names may lack one under both names.
            found = self._next_segment(source)
        return found

    def _next_segment(self, source: Source) -> Segment | None:
        return next((found for found in segments(self.folder) if found.first > source.segment.first), None)

    def _leave(self, source: Source, following: Segment) -> None:
        if self._told:
            self._miss(following.first, self._told)
        source.close()
        try:
            self._source = self._open_segment(following)
        except FileNotFoundError:
            self._source = None

    def _open_segment(self, segment: Segment) -> Source:
        position = self._position if self._position and self._position.segment == segment.first else None
        return open_source(segment, self._read_columns, position)

    def _wait(self, source: Source) -> None:
        """At the end of the log. What cannot be opened may be mended meanwhile."""
        if isinstance(source, UnreadableSource):
            self._source = None

    def _is_far(self, source: Source) -> bool:
        following = self._next_segment(source)
        return following is not None and following.first <= self.offset

    # -- what is not there -------------------------------------------------------------------------------

    def _miss(self, after: int, reason: str) -> None:
        """Everything before that offset that was not read never will be."""
        self._told = ""
        if after > self.offset:
            self.skipped.append(Gap(self.offset, after, reason))
            level = logging.WARNING if reason == REMOVED else logging.ERROR
            log.log(level, "offsets %s to %s cannot be read: %s", f"{self.offset:,}", f"{after - 1:,}", reason)
            self.offset = after

    def _tell(self, reason: str) -> None:
        if reason != self._told:
            log.error("%s", reason)
        self._told = reason


def covering(gaps: list[Gap], first: int, after: int) -> Gap | None:
    return next((gap for gap in gaps if gap.first <= first and after <= gap.next), None)


def _numbers(array: pa.Array) -> memoryview:
    values = memoryview(array.buffers()[1]).cast("B").cast("q")
    return values[array.offset : array.offset + len(array)]
