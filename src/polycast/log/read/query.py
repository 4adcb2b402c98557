"""Queries: the rows of the log that pass a filter, reading only parts of files that may have such rows.

    parts = catalog.parts(start, stop)
    ranges = to_ranges(parts, row_filter, start, stop)
    for batch in query_rows(folder, ranges, row_filter, columns): ...

A part whose metadata rules out a match is never opened. The rows of the other parts are filtered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.format import SCHEMA, Gap
from polycast.log.files.hot import GroupPosition
from polycast.log.files.sealed import RowGroup
from polycast.log.read.catalog import SegmentPart
from polycast.log.read.masks import mask_of
from polycast.log.read.reader import Reader
from polycast.model import Exact, Pattern, Prefix

BATCH_ROWS = 64 * 1024


class Condition(NamedTuple):
    """A comparison with the value of a column. Times are microseconds since the epoch."""

    column: str
    test: str
    """One of TESTS."""
    value: Any


class RowFilter(NamedTuple):
    patterns: tuple[Pattern, ...] | None = None
    """The topic must match one of them."""
    conditions: tuple[Condition, ...] = ()
    """All of them must be true."""
    starts: Mapping[str, int] = {}
    """The first sequence of some topics; other topics are not limited."""
    ends: Mapping[str, int] = {}
    """The sequence before which some topics end."""

    @property
    def columns(self) -> set[str]:
        """The columns that the filter needs."""
        needed = {condition.column for condition in self.conditions}
        if self.patterns is not None:
            needed.add("topic")
        return needed | ({"topic", "sequence"} if self.starts or self.ends else set())


class OffsetRange(NamedTuple):
    """A range of offsets to read."""

    first: int
    next: int
    size: int
    position: GroupPosition | None


# -- skipping --------------------------------------------------------------------------------------------


def to_ranges(parts: Sequence[SegmentPart], row_filter: RowFilter, start: int, stop: int) -> list[OffsetRange]:
    """The parts that may have matching rows, and the parts behind a gap: reading them explains the gap."""
    ranges: list[OffsetRange] = []
    end = start
    for part in parts:
        first = end if part.first > end else max(part.first, start)
        if part.first > end or part.row_group is None or may_match(part.row_group, row_filter):
            ranges.append(OffsetRange(first, min(part.next, stop), part.size, part.position))
        end = part.next
    return ranges


def may_match(row_group: RowGroup, row_filter: RowFilter) -> bool:
    return _may_match(row_group, row_filter.patterns) and all(
        _may_pass(row_group, each) for each in row_filter.conditions
    )


def _may_match(row_group: RowGroup, patterns: Sequence[Pattern] | None) -> bool:
    if patterns is None or row_group.topics is None:
        return True
    if row_group.all_topics:
        return any(pattern.matches(topic) for pattern in patterns for topic in row_group.topics)
    return any(_may_match_between(pattern, row_group.topics[0], row_group.topics[-1]) for pattern in patterns)


def _may_match_between(pattern: Pattern, least: str, greatest: str) -> bool:
    """Whether a topic between these two may match."""
    match pattern:
        case Exact(value):
            return least <= value <= greatest
        case Prefix(value):
            return least[: len(value)] <= value <= greatest[: len(value)]
    return True


def _may_pass(row_group: RowGroup, condition: Condition) -> bool:
    if condition.column == "topic" and row_group.all_topics:
        topics = pa.array(row_group.topics, pa.string())
        return bool(pc.any(TESTS[condition.test](topics, condition.value)).as_py())
    bounds = _bounds(row_group, condition.column)
    if bounds is None or condition.test not in RANGES:
        return True
    return RANGES[condition.test](*bounds, condition.value)


def _bounds(row_group: RowGroup, column: str) -> tuple[Any, Any] | None:
    match column:
        case "offset":
            return row_group.first, row_group.next - 1
        case "time":
            return row_group.first_time, row_group.last_time
        case "sequence":
            return row_group.sequences
        case "topic" if row_group.topics:
            return row_group.topics[0], row_group.topics[-1]
    return None


RANGES: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda least, greatest, value: least <= value <= greatest,
    "in": lambda least, greatest, values: any(least <= value <= greatest for value in values),
    ">": lambda least, greatest, value: greatest > value,
    ">=": lambda least, greatest, value: greatest >= value,
    "<": lambda least, greatest, value: least < value,
    "<=": lambda least, greatest, value: least <= value,
}
"""Whether a value between these two may pass the test."""

TESTS: dict[str, Callable[[pa.Array, Any], pa.Array]] = {
    "=": pc.equal,
    "in": lambda column, values: pc.is_in(column, value_set=pa.array(values, column.type)),
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    "starts": pc.starts_with,
    "ends": pc.ends_with,
    "contains": pc.match_substring,
}

# -- reading ---------------------------------------------------------------------------------------------


def query_rows(
    folder: Path,
    ranges: Sequence[OffsetRange],
    row_filter: RowFilter,
    columns: Sequence[str],
    on_skipped: Callable[[Gap], None] = lambda gap: None,
) -> Iterator[pa.RecordBatch]:
    """Matching rows in the order of offsets. Calls `on_skipped` for missing messages."""
    if not ranges:
        return
    read = [name for name in SCHEMA.names if name in {*columns, *row_filter.columns, "offset"}]
    reader = Reader(folder, ranges[0].first, read)
    reported = 0
    try:
        for range_ in ranges:
            reader.seek(range_.first, range_.position)
            while reader.offset < range_.next and (batch := reader.read(range_.next, BATCH_ROWS)) is not None:
                rows = matching_rows(batch, row_filter)
                if rows.num_rows:
                    yield rows.select(columns)
            reader.finish(range_.next)
            for gap in reader.skipped[reported:]:
                on_skipped(gap)
            reported = len(reader.skipped)
    finally:
        reader.close()


def pieces(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of no more than so many bytes, or of one row: a group of the log has any size."""
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start)
            while piece.num_rows > 1 and piece.nbytes > size:
                piece = piece.slice(0, piece.num_rows // 2)
            yield piece
            start += piece.num_rows


def matching_rows(batch: pa.RecordBatch, row_filter: RowFilter) -> pa.RecordBatch:
    """The batch itself if all rows match."""
    mask = _mask(batch, row_filter)
    return batch if mask is None or pc.all(mask).as_py() else batch.filter(mask)


def _mask(batch: pa.RecordBatch, row_filter: RowFilter) -> pa.Array | None:
    masks = [TESTS[each.test](_values(batch, each.column), each.value) for each in row_filter.conditions]
    if row_filter.patterns is not None:
        masks.append(_any([mask_of(batch["topic"], pattern) for pattern in row_filter.patterns]))
    for sequences, beyond in ((row_filter.starts, pc.less), (row_filter.ends, pc.greater_equal)):
        for topic, sequence in sequences.items():
            named = pc.equal(batch["topic"], topic)
            masks.append(pc.invert(pc.and_(named, beyond(batch["sequence"], sequence))))
    return _all(masks)


def _values(batch: pa.RecordBatch, column: str) -> pa.Array:
    return batch["time"].cast(pa.int64()) if column == "time" else batch[column]


def _all(masks: list[pa.Array]) -> pa.Array | None:
    total = masks[0] if masks else None
    for mask in masks[1:]:
        total = pc.and_(total, mask)
    return total


def _any(masks: list[pa.Array]) -> pa.Array:
    total = masks[0]
    for mask in masks[1:]:
        total = pc.or_(total, mask)
    return total
