"""What the log has, for operators: its bytes, its oldest message, its gaps and its unreadable messages.

Housekeeping updates the numbers once a round; any thread may read them. The headers of a segment are read once,
some segments in each round, so that a long log costs little after a start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment, segment_size, segments
from polycast.log.files.format import Gap
from polycast.log.files.quarantine import read_lost
from polycast.log.read.gaps import SegmentRange, count_offsets, find_holes, read_range
from polycast.log.read.seek import first_offset, first_time

SEGMENTS_A_ROUND = 64
"""Segments whose headers are read in one round."""


class Inventory:
    def __init__(self, folder: Path, open_bytes: Callable[[], int] = lambda: 0) -> None:
        """`open_bytes`: the bytes written to the segment that is not closed; its file is allocated ahead."""
        self._folder = folder
        self._open_bytes = open_bytes
        self._ranges: dict[Segment, SegmentRange | None] = {}
        """None for an unreadable segment."""
        self._closed = 0
        """Segments before this offset were closed when they were read: their ranges stay."""
        self._oldest: tuple[Segment, int] | None = None
        self.size = 0
        self.first: int | None = None
        """None: the log is empty."""
        self.oldest_micros = 0
        """The time of the oldest message; 0 without one."""
        self.gaps: list[Gap] = []
        """All recorded gaps, in the order of offsets."""
        self.messages_unreadable = 0
        self._noted: dict[int, Gap] = {}
        """Damage that readers met and that is not recorded yet, by first offset."""
        self.unreadable: set[int] = set()
        """First offsets of segments whose head or footer cannot be read."""
        self.holes: list[Gap] = []
        """Offsets between two segments that no gap covers."""

    def note(self, gap: Gap) -> None:
        """In any thread: a reader met damage."""
        self._noted[gap.first] = gap

    def suspects(self) -> list[int]:
        """Offsets of unrecorded damage: of a message each, or the first of a segment."""
        return sorted({*self._noted, *self.unreadable})

    def forget(self, suspects: list[int]) -> None:
        """After their segment was salvaged."""
        for offset in suspects:
            self._noted.pop(offset, None)
            self.unreadable.discard(offset)

    def written_bytes(self, found: list[Segment], closed: int) -> int:
        """Segments before the offset `closed` are closed."""
        return sum(segment_size(each) for each in found if each.first < closed) + self._open_bytes()

    def update(self, closed: int) -> None:
        found = segments(self._folder)
        self.size = self.written_bytes(found, closed)
        self.first = first_offset(self._folder)
        self.oldest_micros = self._oldest_time(found[0]) if found else 0
        self._read_ranges(found, closed)
        first = self.first or 0
        lost = {gap for gap in read_lost(self._folder) if gap.next > first}
        segment_gaps = (gap for each in self._ranges.values() if each for gap in each.gaps)
        recorded = {gap for gap in segment_gaps if gap.next > first} | lost
        self.gaps = sorted(recorded, key=lambda gap: (gap.first, gap.next))
        self.holes = find_holes([self._ranges.get(segment) for segment in found], [*lost])
        self._forget_recorded(lost, first)
        unreadable = [Gap(max(gap.first, first), gap.next, "") for gap in (*lost, *self._noted.values())]
        self.messages_unreadable = count_offsets(unreadable)

    def _forget_recorded(self, lost: set[Gap], first: int) -> None:
        """Also damage that retention has removed."""
        for offset, gap in list(self._noted.items()):
            if gap.next <= first or any(each.first <= offset < each.next for each in lost):
                del self._noted[offset]

    def _oldest_time(self, segment: Segment) -> int:
        """A segment without messages is read again: its first one may come."""
        if self._oldest is None or self._oldest[0] != segment or not self._oldest[1]:
            try:
                self._oldest = segment, first_time(segment) or 0
            except (LogDamageError, FileNotFoundError):
                return 0
        return self._oldest[1]

    def _read_ranges(self, found: list[Segment], closed: int) -> None:
        known = {each: self._ranges[each] for each in found if each in self._ranges and each.first < self._closed}
        unknown = [segment for segment in found if segment not in known]
        for segment in unknown[:SEGMENTS_A_ROUND]:
            try:
                known[segment] = read_range(segment)
            except FileNotFoundError:  # sealed or removed meanwhile
                continue
            except LogDamageError:
                known[segment] = None
                self.unreadable.add(segment.first)
        self.unreadable &= {segment.first for segment in found}
        self._ranges, self._closed = known, closed
