"""Rows of the log that somebody wants, and only those parts of the files that may have them.

    pieces = survey.pieces(start, stop)
    stretches = to_stretches(pieces, wanted, start, stop)
    for batch in scan(folder, stretches, wanted, columns): ...

What can be ruled out by what is known about a piece is never opened; the rows of the others are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """What the value of a column must be like. Times are in microseconds since the epoch."""

    column: str
    test: str
    """One of TESTS."""
    value: Any


class RowFilter(NamedTuple):
    patterns: tuple[Pattern, ...] | None = None
    """A topic must match one of them."""
    conditions: tuple[Condition, ...] = ()
    """All of them must be met."""
    starts: Mapping[str, int] = {}
    """The sequences at which some topics begin; the others have all they have."""
    ends: Mapping[str, int] = {}
    """The sequences before which some topics end."""

    @property
    def columns(self) -> set[str]:
        """What must be read to know."""
        needed = {condition.column for condition in self.conditions}
        if self.patterns is not None:
            needed.add("topic")
        return needed | ({"topic", "sequence"} if self.starts or self.ends else set())


class OffsetRange(NamedTuple):
    """Offsets that are read one after the other."""

    first: int
    next: int
    size: int
    position: GroupPosition | None


# -- what need not be read -------------------------------------------------------------------------------


def to_ranges(pieces: Sequence[SegmentPart], wanted: RowFilter, start: int, stop: int) -> list[OffsetRange]:
    """From pieces that may have such rows, and from those behind a hole: who reads them finds out what it is."""
    stretches: list[OffsetRange] = []
    end = start
    for piece in pieces:
        first = end if piece.first > end else max(piece.first, start)
        if piece.first > end or piece.facts is None or may_match(piece.facts, wanted):
            stretches.append(OffsetRange(first, min(piece.next, stop), piece.size, piece.position))
        end = piece.next
    return stretches


def may_match(facts: RowGroup, wanted: RowFilter) -> bool:
    return _may_match(facts, wanted.patterns) and all(_may_meet(facts, each) for each in wanted.conditions)


def _may_match(facts: RowGroup, patterns: Sequence[Pattern] | None) -> bool:
    if patterns is None or facts.topics is None:
        return True
    if facts.all_topics:
        return any(pattern.matches(topic) for pattern in patterns for topic in facts.topics)
    return any(_may_lie(pattern, facts.topics[0], facts.topics[-1]) for pattern in patterns)


def _may_lie(pattern: Pattern, least: str, greatest: str) -> bool:
    """Whether a topic between these two can match."""
    match pattern:
        case Exact(value):
            return least <= value <= greatest
        case Prefix(value):
            return least[: len(value)] <= value <= greatest[: len(value)]
    return True


def _may_meet(facts: RowGroup, condition: Condition) -> bool:
    if condition.column == "topic" and facts.all_topics:
        topics = pa.array(facts.topics, pa.string())
        return bool(pc.any(TESTS[condition.test](topics, condition.value)).as_py())
    bounds = _bounds(facts, condition.column)
    if bounds is None or condition.test not in RANGES:
        return True
    return RANGES[condition.test](*bounds, condition.value)


def _bounds(facts: RowGroup, column: str) -> tuple[Any, Any] | None:
    match column:
        case "offset":
            return facts.first, facts.next - 1
        case "time":
            return facts.first_time, facts.last_time
        case "sequence":
            return facts.sequences
        case "topic" if facts.topics:
            return facts.topics[0], facts.topics[-1]
    return None


RANGES: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda least, greatest, value: least <= value <= greatest,
    "in": lambda least, greatest, values: any(least <= value <= greatest for value in values),
    ">": lambda least, greatest, value: greatest > value,
    ">=": lambda least, greatest, value: greatest >= value,
    "<": lambda least, greatest, value: least < value,
    "<=": lambda least, greatest, value: least <= value,
}
"""Whether a value between these two can pass the test."""

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

# -- what is read ----------------------------------------------------------------------------------------


def query_rows(
    folder: Path,
    stretches: Sequence[OffsetRange],
    wanted: RowFilter,
    columns: Sequence[str],
    on_skipped: Callable[[Gap], None] = lambda gap: None,
) -> Iterator[pa.RecordBatch]:
    """Those rows, in the order of their offsets. `on_skipped` is told what should have been there and was not."""
    if not stretches:
        return
    read = [name for name in SCHEMA.names if name in {*columns, *wanted.columns, "offset"}]
    reader = Reader(folder, stretches[0].first, read)
    told = 0
    try:
        for stretch in stretches:
            reader.seek(stretch.first, stretch.position)
            while reader.offset < stretch.next and (batch := reader.read(stretch.next, BATCH_ROWS)) is not None:
                rows = matching_rows(batch, wanted)
                if rows.num_rows:
                    yield rows.select(columns)
            for gap in reader.skipped[told:]:
                on_skipped(gap)
            told = len(reader.skipped)
    finally:
        reader.close()


def matching_rows(batch: pa.RecordBatch, wanted: RowFilter) -> pa.RecordBatch:
    """The batch itself, if it is wanted as a whole."""
    mask = _mask(batch, wanted)
    return batch if mask is None or pc.all(mask).as_py() else batch.filter(mask)


def _mask(batch: pa.RecordBatch, wanted: RowFilter) -> pa.Array | None:
    masks = [TESTS[each.test](_values(batch, each.column), each.value) for each in wanted.conditions]
    if wanted.patterns is not None:
        masks.append(_any([mask_of(batch["topic"], pattern) for pattern in wanted.patterns]))
    for sequences, beyond in ((wanted.starts, pc.less), (wanted.ends, pc.greater_equal)):
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
