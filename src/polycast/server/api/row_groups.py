"""Whole row groups of a sealed segment, as they are in the file: the broker reads bytes, the requester decodes.

That costs the broker a fraction of the time that it needs to decode and encode rows, and the rows are compressed
on the wire. A row group is sent this way if the request covers most of it, and if no message before or in it is
missing; the broker decodes all other rows (see `log_rows`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment, segments
from polycast.log.files.sealed import RowGroup, SealedReader
from polycast.model import Everything, Pattern
from polycast.server.api.rows_query import RowsQuery

COVERED_SHARE = 0.5
"""The part of a row group that a request must cover."""
PATTERNS_AT_MOST = 100
"""With more patterns the broker decodes: comparing them with topics would make one long step of work."""


class FoundRowGroups(NamedTuple):
    numbers: list[int]
    extracted: pa.RecordBatch
    next: int
    """The offset after them."""


def extract_row_groups(folder: Path, wanted: RowsQuery, stop: int) -> FoundRowGroups | None:
    """Consecutive row groups from the first offset on. None if rows are to be decoded: a reader of rows also
    reports what is missing or damaged."""
    segment = _segment_at(folder, wanted.first)
    if segment is None or not segment.sealed:
        return None
    try:
        with SealedReader(segment.path) as reader:
            numbers, after = _choose(reader, wanted, stop)
            return FoundRowGroups(numbers, reader.extract(numbers, wanted.columns), after) if numbers else None
    except (LogDamageError, OSError):
        return None


def _segment_at(folder: Path, offset: int) -> Segment | None:
    found = segments(folder)
    index = bisect_right([segment.first for segment in found], offset)
    return found[index - 1] if index else None


def _choose(reader: SealedReader, wanted: RowsQuery, stop: int) -> tuple[list[int], int]:
    """Their numbers, and the offset after them. The first one may be larger than a response with rows: to send a
    part of it, the broker would decode it for each response."""
    numbers: list[int] = []
    first, size = wanted.first, 0
    for number, row_group in enumerate(reader.metadata.row_groups):
        if row_group.next <= first:
            continue
        size += reader.extracted_bytes(number, wanted.columns)
        fits = size <= (wanted.bytes if numbers else wanted.row_group_bytes)
        if not (fits and _covers(row_group, first, stop) and _all_match(row_group, wanted.patterns)):
            break
        numbers.append(number)
        first = min(row_group.next, stop)
    return numbers, first


def _covers(row_group: RowGroup, first: int, stop: int) -> bool:
    """Whether the row group has all offsets from `first` on, and few others."""
    whole = row_group.first <= first < stop and row_group.count == row_group.next - row_group.first
    return whole and min(row_group.next, stop) - first >= COVERED_SHARE * row_group.count


def _all_match(row_group: RowGroup, patterns: Sequence[Pattern] | None) -> bool:
    """Whether no pattern is selective. `>` leaves out only the topics of the broker."""
    if patterns is None or Everything() in patterns:
        return True
    if not row_group.all_topics or row_group.topics is None or len(patterns) > PATTERNS_AT_MOST:
        return False
    return all(any(pattern.matches(topic) for pattern in patterns) for topic in row_group.topics)
