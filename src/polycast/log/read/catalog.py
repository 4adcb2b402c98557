"""What the log holds, piece by piece, without its rows: for whoever plans how to read it.

A piece is a row group of a sealed segment, or some groups of a hot one. What sealed segments say about their row
groups is proven; what is told of hot ones is not, and is found out when they are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polycast.errors import LogDamageError
from polycast.log.files.folder import SEALED, Segment, segments
from polycast.log.files.hot import GroupPosition, HotReader
from polycast.log.files.sealed import RowGroup, SealedReader

PIECE_BYTES = 1024 * 1024
"""Groups of a hot segment are put together up to here."""
SETTLED_SECONDS = 1.0
"""A folder that was not changed for so long has no change that its time does not tell."""


class SegmentPart(NamedTuple):
    first: int
    next: int
    size: int
    """In bytes, as it lies in memory or near that."""
    position: GroupPosition | None = None
    """Where it begins, in a hot segment."""
    facts: RowGroup | None = None
    """What is known about its rows, in a sealed one."""


class LogCatalog:
    """Remembers what it has seen: to ask again costs little. Not for several threads at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listed: tuple[int, list[Segment]] = (-1, [])
        self._hot: HotIndex | None = None

    def first(self) -> int:
        """0 if there is nothing."""
        found = self._segments()
        return found[0].first if found else 0

    def next(self) -> int:
        """The offset after the last message; 0 if there is nothing."""
        while found := self._segments():
            try:
                return self._end_of(found[-1])
            except FileNotFoundError:
                self._listed = (-1, [])
        return 0

    def pieces(self, start: int, stop: int) -> list[SegmentPart]:
        """Those with anything from `start` up to `stop`, by offset."""
        found = self._segments()
        ends = [*(segment.first for segment in found), stop][1:]
        pieces: list[SegmentPart] = []
        for segment, end in zip(found, ends, strict=True):
            if segment.first < stop and end > start:
                pieces += [piece for piece in self._look_into(segment, end) if piece.next > start]
        return [piece for piece in pieces if piece.first < stop]

    def close(self) -> None:
        if self._hot:
            self._hot.close()
        self._hot = None

    def _segments(self) -> list[Segment]:
        changed = self.folder.stat().st_mtime_ns
        if changed != self._listed[0]:
            found = segments(self.folder)
            settled = time.time() - changed / 1e9 > SETTLED_SECONDS
            self._listed = (changed if settled else -1, found)
        return self._listed[1]

    def _end_of(self, segment: Segment) -> int:
        try:
            if not segment.sealed:
                return self._index(segment).next
            with SealedReader(segment.path) as sealed:
                return sealed.metadata.next
        except LogDamageError:
            return segment.first

    def _look_into(self, segment: Segment, end: int) -> list[SegmentPart]:
        """A segment that cannot be opened is one piece: whoever reads it is told why."""
        for named in (segment, Segment(segment.first, segment.path.with_suffix(SEALED))):
            try:
                return self._index(named).pieces if not named.sealed else list(row_groups(named))
            except FileNotFoundError:
                continue
            except LogDamageError:
                break
        return [SegmentPart(segment.first, end, 1)]

    def _index(self, segment: Segment) -> HotIndex:
        if self._hot is None or self._hot.segment != segment:
            self.close()
            self._hot = HotIndex(segment)
        self._hot.follow()
        return self._hot


def offset_bounds(folder: Path) -> tuple[int, int]:
    """The first offset of a log, and the one after its last."""
    survey = LogCatalog(folder)
    try:
        return survey.first(), survey.next()
    finally:
        survey.close()


class HotIndex:
    """Grows with its segment."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.next = segment.first
        self.pieces: list[SegmentPart] = []
        self._reader = HotReader(segment.path)

    def follow(self) -> None:
        """What is damaged is passed over: it lies between two pieces, and who reads them will notice."""
        self._take()
        while not self._reader.ends_at(self._reader.position) and self._reader.find(self.next):
            self._take()

    def _take(self) -> None:
        for byte, header in self._reader.headers():
            last = self.pieces[-1] if self.pieces else None
            if last and last.size < PIECE_BYTES and last.next == header.first:
                self.pieces[-1] = last._replace(next=header.next, size=last.size + header.size)
            else:
                position = GroupPosition(self.segment.first, header.first, byte)
                self.pieces.append(SegmentPart(header.first, header.next, header.size, position))
            self.next = header.next

    def close(self) -> None:
        self._reader.close()


def row_groups(segment: Segment) -> Iterator[SegmentPart]:
    with SealedReader(segment.path) as sealed:
        for number, facts in enumerate(sealed.metadata.row_groups):
            yield SegmentPart(facts.first, facts.next, sealed.size_of(number), facts=facts)
