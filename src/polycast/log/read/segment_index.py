"""Which parts of which segments may have rows of a pattern.

Sealed segments list the topics of each row group, so that most row groups are skipped. Results for immutable
segments are cached. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from polycast.errors import LogDamageError
from polycast.log.files.folder import SEALED, Segment, segments
from polycast.log.files.hot import GroupPosition
from polycast.log.read.catalog import HotIndex, SegmentPart, row_groups
from polycast.log.read.query import OffsetRange, RowFilter, to_ranges

SEGMENT_LIMIT = 256
LAST_OFFSET = 2**63 - 1


class SegmentIndex:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: OrderedDict[Segment, list[SegmentPart]] = OrderedDict()
        self._hot: HotIndex | None = None
        """Index of the segment being written."""
        self._lock = threading.Lock()

    def ranges(self, row_filter: RowFilter, start: int, stop: int) -> Iterator[list[OffsetRange]]:
        """The ranges from `start` up to `stop` that may match: one list per segment, oldest first."""
        return self._find_ranges(self._between(start, stop), row_filter, start, stop)

    def ranges_backwards(self, row_filter: RowFilter, start: int, stop: int) -> Iterator[list[OffsetRange]]:
        """Newest segment first, and in each the newest range first."""
        found = self._find_ranges(reversed(self._between(start, stop)), row_filter, start, stop)
        return (ranges[::-1] for ranges in found)

    def position(self, offset: int) -> GroupPosition | None:
        """Where to begin to read a hot segment. None in a sealed one."""
        ranges = next(self.ranges(RowFilter(), offset, offset + 1), [])
        return ranges[0].position if ranges else None

    def close(self) -> None:
        with self._lock:
            self._close_hot()

    # -- segments ----------------------------------------------------------------------------------------

    def _between(self, start: int, stop: int) -> list[tuple[Segment, int | None]]:
        """Each with the first offset of the next segment; None for the last one."""
        found = segments(self.folder)
        return [
            (segment, end)
            for segment, end in zip_longest(found, [segment.first for segment in found[1:]])
            if segment.first < stop and (end is None or end > start)
        ]

    def _find_ranges(
        self, found: Iterable[tuple[Segment, int | None]], row_filter: RowFilter, start: int, stop: int
    ) -> Iterator[list[OffsetRange]]:
        for segment, end in found:
            first, last = max(start, segment.first), stop if end is None else min(stop, end)
            parts = [part for part in self._parts(segment, end) if first < part.next and part.first < last]
            yield to_ranges(parts, row_filter, first, last)

    def _parts(self, segment: Segment, end: int | None) -> list[SegmentPart]:
        """An unreadable segment is one part: reading it reports the error."""
        with self._lock:
            if segment in self._known:
                self._known.move_to_end(segment)
                return self._known[segment]
            for named in (segment, Segment(segment.first, segment.path.with_suffix(SEALED))):
                try:
                    return self._find(named, last=end is None)
                except FileNotFoundError:
                    continue
                except LogDamageError:
                    break
        return [SegmentPart(segment.first, LAST_OFFSET if end is None else end, 1)]

    def _find(self, segment: Segment, last: bool) -> list[SegmentPart]:
        if last and not segment.sealed:
            return list(self._follow(segment))
        parts = list(row_groups(segment)) if segment.sealed else _hot_parts(segment)
        self._known[segment] = parts
        if len(self._known) > SEGMENT_LIMIT:
            self._known.popitem(last=False)
        return parts

    def _follow(self, segment: Segment) -> list[SegmentPart]:
        if self._hot is None or self._hot.segment != segment:
            self._close_hot()
            self._hot = HotIndex(segment)
        self._hot.follow()
        return self._hot.parts

    def _close_hot(self) -> None:
        if self._hot:
            self._hot.close()
        self._hot = None


def _hot_parts(segment: Segment) -> list[SegmentPart]:
    index = HotIndex(segment)
    try:
        index.follow()
        return index.parts
    finally:
        index.close()
