"""Gaps: those that a segment records, ranges that several gaps cover together, and holes between segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from polycast.log.files.folder import Segment
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader

MISSING = "no segment holds them"


class SegmentRange(NamedTuple):
    """The offsets of a segment, and the gaps that its headers record."""

    first: int
    next: int
    """The offset after the last message; without messages, the first offset."""
    gaps: Sequence[Gap] = ()


def read_range(segment: Segment) -> SegmentRange:
    """Of a hot segment, by the headers of its groups, unverified. Raises LogDamageError and FileNotFoundError."""
    if segment.sealed:
        with SealedReader(segment.path) as sealed:
            return SegmentRange(segment.first, sealed.metadata.next, sealed.metadata.gaps)
    hot = HotReader(segment.path)
    try:
        headers = [header for _, header in hot.headers()]
    finally:
        hot.close()
    after = headers[-1].next if headers else segment.first
    return SegmentRange(segment.first, after, [header.gap for header in headers if header.gap])


def find_holes(ranges: Iterable[SegmentRange | None], recorded: Sequence[Gap]) -> list[Gap]:
    """The offsets between two segments that no gap covers. None stands for an unknown range.

    The first group of a segment records the gap before it: a segment without messages is passed over."""
    holes: list[Gap] = []
    for before, after in pairwise(each for each in ranges if each is None or each.next > each.first):
        if before and after and before.next < after.first:
            holes += outside(Gap(before.next, after.first, MISSING), [*recorded, *after.gaps])
    return holes


def covering(gaps: Sequence[Gap], first: int, after: int) -> Gap | None:
    """One of the gaps that cover the range together, if possible one with missing messages; otherwise None."""
    found: list[Gap] = []
    while first < after:
        gap = next((gap for gap in gaps if gap.first <= first < gap.next), None)
        if gap is None:
            return None
        found.append(gap)
        first = gap.next
    return next((gap for gap in found if gap.missed), found[0] if found else None)


def outside(gap: Gap, others: Iterable[Gap]) -> list[Gap]:
    """The parts of a gap that no other gap covers."""
    parts, first = [], gap.first
    for other in sorted(others, key=lambda each: each.first):
        if first < min(other.first, gap.next):
            parts.append(replace(gap, first=first, next=min(other.first, gap.next)))
        first = max(first, other.next)
    return [*parts, replace(gap, first=first)] if first < gap.next else parts


def count_offsets(gaps: Iterable[Gap]) -> int:
    """Each offset once, also if gaps overlap."""
    count = end = 0
    for gap in sorted(gaps, key=lambda each: each.first):
        count += max(0, gap.next - max(gap.first, end))
        end = max(end, gap.next)
    return count
