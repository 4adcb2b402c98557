"""The catalog: which parts the log has, without their rows, to plan how to read it.

A part is a row group of a sealed segment, or some groups of a hot one. The metadata of row groups is verified;
that of hot groups is verified when they are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polycast.errors import LogDamageError
from polycast.log.files.agreed_first import read_agreed_first
from polycast.log.files.folder import SEALED, Segment, segments
from polycast.log.files.hot import GroupPosition, HotReader
from polycast.log.files.sealed import RowGroup, SealedReader

PART_BYTES = 1024 * 1024
"""Groups of a hot segment are joined up to this size."""
STABLE_SECONDS = 1.0
"""After this time without changes, the modification time of the folder reveals every change."""


class SegmentPart(NamedTuple):
    first: int
    next: int
    size: int
    """About the bytes in memory."""
    position: GroupPosition | None = None
    """Position in a hot segment."""
    row_group: RowGroup | None = None
    """Row group of a sealed segment."""


class LogCatalog:
    """Caches what it has read. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listed: tuple[int, list[Segment]] = (-1, [])
        self._hot: HotIndex | None = None

    def first(self) -> int:
        """0 if the log is empty."""
        found = self._segments()
        return max(found[0].first, read_agreed_first(self.folder)) if found else 0

    def next(self) -> int:
        """The offset after the last message; 0 if the log is empty."""
        while found := self._segments():
            try:
                return self._end_of(found[-1])
            except FileNotFoundError:
                self._listed = (-1, [])
        return 0

    def parts(self, start: int, stop: int) -> list[SegmentPart]:
        """The parts with offsets from `start` up to `stop`, in order."""
        found = self._segments()
        ends = [*(segment.first for segment in found), stop][1:]
        parts: list[SegmentPart] = []
        for segment, end in zip(found, ends, strict=True):
            if segment.first < stop and end > start:
                parts += [part for part in self._parts_of(segment, end) if part.next > start]
        return [part for part in parts if part.first < stop]

    def close(self) -> None:
        if self._hot:
            self._hot.close()
        self._hot = None

    def _segments(self) -> list[Segment]:
        changed = self.folder.stat().st_mtime_ns
        if changed != self._listed[0]:
            found = segments(self.folder)
            stable = time.time() - changed / 1e9 > STABLE_SECONDS
            self._listed = (changed if stable else -1, found)
        return self._listed[1]

    def _end_of(self, segment: Segment) -> int:
        try:
            if not segment.sealed:
                return self._index(segment).next
            with SealedReader(segment.path) as sealed:
                return sealed.metadata.next
        except LogDamageError:
            return segment.first

    def _parts_of(self, segment: Segment, end: int) -> list[SegmentPart]:
        """An unreadable segment is one part: reading it reports the error."""
        for named in (segment, Segment(segment.first, segment.path.with_suffix(SEALED))):
            try:
                return self._index(named).parts if not named.sealed else list(row_groups(named))
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
    """The first offset of a log, and the offset after its last message."""
    catalog = LogCatalog(folder)
    try:
        return catalog.first(), catalog.next()
    finally:
        catalog.close()


class HotIndex:
    """The parts of a hot segment, updated while it grows."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.next = segment.first
        self.parts: list[SegmentPart] = []
        self._reader = HotReader(segment.path)

    def follow(self) -> None:
        """Skips damage, which lies between two parts: reading them reports it."""
        self._take()
        while not self._reader.ends_at(self._reader.position) and self._reader.find_group(self.next):
            self._take()

    def _take(self) -> None:
        for byte, header in self._reader.headers():
            last = self.parts[-1] if self.parts else None
            if last and last.size < PART_BYTES and last.next == header.first:
                self.parts[-1] = last._replace(next=header.next, size=last.size + header.size)
            else:
                position = GroupPosition(self.segment.first, header.first, byte)
                self.parts.append(SegmentPart(header.first, header.next, header.size, position))
            self.next = header.next

    def close(self) -> None:
        self._reader.close()


def row_groups(segment: Segment) -> Iterator[SegmentPart]:
    with SealedReader(segment.path) as sealed:
        for number, row_group in enumerate(sealed.metadata.row_groups):
            yield SegmentPart(row_group.first, row_group.next, sealed.size_of(number), row_group=row_group)
