"""Which pieces of which segments may have rows of a pattern.

Sealed segments list the topics of each row group, so that most of them need not be read. What was found in a
segment that does not change any more is remembered. For several threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path

from polycast.errors import LogDamageError
from polycast.log.files.folder import SEALED, Segment, segments
from polycast.log.read.catalog import HotIndex, SegmentPart, row_groups
from polycast.log.read.query import OffsetRange, RowFilter, to_ranges

SEGMENTS_AT_MOST = 256
ANYWHERE = 2**63 - 1


class SegmentIndex:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: OrderedDict[Segment, list[SegmentPart]] = OrderedDict()
        self._hot: HotIndex | None = None
        """Of the segment that is being written."""
        self._lock = threading.Lock()

    def ranges(self, wanted: RowFilter, start: int, stop: int) -> Iterator[list[OffsetRange]]:
        """Those that may have such rows from `start` up to `stop`: for each segment, the oldest first."""
        return self._look(self._between(start, stop), wanted, start, stop)

    def ranges_backwards(self, wanted: RowFilter, start: int, stop: int) -> Iterator[list[OffsetRange]]:
        """The same with the newest segment first, and in each the newest stretch first."""
        found = self._look(reversed(self._between(start, stop)), wanted, start, stop)
        return (stretches[::-1] for stretches in found)

    def close(self) -> None:
        with self._lock:
            self._close_hot()

    # -- segments ----------------------------------------------------------------------------------------

    def _between(self, start: int, stop: int) -> list[tuple[Segment, int | None]]:
        """Each with where the next one begins; None for the last one of the log."""
        found = segments(self.folder)
        ends = [*(segment.first for segment in found[1:]), None]
        return [
            (segment, end)
            for segment, end in zip(found, ends, strict=True)
            if segment.first < stop and (end is None or end > start)
        ]

    def _look(
        self, found: Iterable[tuple[Segment, int | None]], wanted: RowFilter, start: int, stop: int
    ) -> Iterator[list[OffsetRange]]:
        for segment, end in found:
            first, last = max(start, segment.first), stop if end is None else min(stop, end)
            pieces = [piece for piece in self._pieces(segment, end) if first < piece.next and piece.first < last]
            yield to_ranges(pieces, wanted, first, last)

    def _pieces(self, segment: Segment, end: int | None) -> list[SegmentPart]:
        """A segment that cannot be opened is one piece: who reads it is told why."""
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
        return [SegmentPart(segment.first, ANYWHERE if end is None else end, 1)]

    def _find(self, segment: Segment, last: bool) -> list[SegmentPart]:
        if last and not segment.sealed:
            return list(self._follow(segment))
        pieces = list(row_groups(segment)) if segment.sealed else _hot_pieces(segment)
        self._known[segment] = pieces
        if len(self._known) > SEGMENTS_AT_MOST:
            self._known.popitem(last=False)
        return pieces

    def _follow(self, segment: Segment) -> list[SegmentPart]:
        if self._hot is None or self._hot.segment != segment:
            self._close_hot()
            self._hot = HotIndex(segment)
        self._hot.follow()
        return self._hot.pieces

    def _close_hot(self) -> None:
        if self._hot:
            self._hot.close()
        self._hot = None


def _hot_pieces(segment: Segment) -> list[SegmentPart]:
    index = HotIndex(segment)
    try:
        index.follow()
        return index.pieces
    finally:
        index.close()
