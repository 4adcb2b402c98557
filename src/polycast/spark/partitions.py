"""Plans a read: from options to an offset range, and from the range to partitions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from polycast.errors import GoneError
from polycast.log.read.query import Condition, OffsetRange, RowFilter, to_ranges
from polycast.model import Everything, Exact
from polycast.spark.log_view import LogView
from polycast.spark.options import EARLIEST, LATEST, Position, SourceOptions

PARTITION_BYTES = 4 * 1024 * 1024
"""Below this size a partition costs more than it saves."""
MAX_PARTITION_BYTES = 256 * 1024 * 1024


class Range(NamedTuple):
    """Offsets from `first` up to, not including, `next`."""

    first: int
    next: int


class LogPartition(InputPartition):
    def __init__(self, ranges: Sequence[OffsetRange], number: int) -> None:
        self.ranges = list(ranges)
        self.number = number


def to_wanted(options: SourceOptions, conditions: Sequence[Condition] = ()) -> RowFilter:
    return RowFilter(
        options.patterns or (Everything(),),
        tuple(conditions),
        options.start if isinstance(options.start, dict) else {},
        options.end if isinstance(options.end, dict) else {},
    )


def find_start(view: LogView, options: SourceOptions, default: str) -> int:
    if options.start_micros is not None:
        return view.at_time(options.start_micros)
    position = default if options.start is None else options.start
    if isinstance(position, dict):
        return _first_of_sequences(view, options, position)
    return _offset(view, position)


def find_range(view: LogView, options: SourceOptions) -> Range:
    """The range of a batch query."""
    first = find_start(view, options, EARLIEST)
    if options.end_micros is not None:
        after = view.at_time(options.end_micros)
    elif options.end is None or isinstance(options.end, dict):
        after = view.next()
    else:
        after = _offset(view, options.end)
    return Range(first, max(first, after))


def _first_of_sequences(view: LogView, options: SourceOptions, sequences: dict[str, int]) -> int:
    """Topics without a sequence start at the first offset of the log."""
    named = all(
        isinstance(each, Exact) and each.value in sequences for each in options.patterns or (Everything(),)
    )
    return max(view.first(), view.at_sequences(sequences)) if named else view.first()


def _offset(view: LogView, position: Position) -> int:
    if position == EARLIEST:
        return view.first()
    if position == LATEST:
        return view.next()
    assert isinstance(position, int)
    return position


def check_range(view: LogView, wanted: Range, fail_on_data_loss: bool) -> Range:
    """The part of a range that the log has. Raises GoneError for offsets before its start or past its end."""
    first = view.first()
    if wanted.first < first and wanted.first < wanted.next and fail_on_data_loss:
        last = min(first, wanted.next) - 1
        raise GoneError(
            f"offsets {wanted.first:,} to {last:,} were removed: the log starts at offset {first:,}",
            "failOnDataLoss=false skips them; raise log.retain_seconds or log.retain_bytes to retain more",
        )
    beyond = max(wanted.first, wanted.next)
    if beyond > first and beyond > (after := view.reach(beyond)):
        raise GoneError(
            f"offset {beyond:,} is past the end of the log at {after:,}",
            "the checkpoint belongs to another log: use another checkpointLocation",
        )
    return Range(max(wanted.first, first), max(wanted.next, first))


def narrow(wanted: Range, conditions: Sequence[Condition]) -> Range:
    """The part of a range that can satisfy the conditions."""
    first, after = wanted
    for condition in conditions:
        if condition.column == "offset" and condition.test in BOUNDS:
            lower, upper = BOUNDS[condition.test]
            first = first if lower is None else max(first, condition.value + lower)
            after = after if upper is None else min(after, condition.value + upper)
    return Range(first, max(first, after))


BOUNDS: dict[str, tuple[int | None, int | None]] = {
    "=": (0, 1),
    ">": (1, None),
    ">=": (0, None),
    "<": (None, 0),
    "<=": (None, 1),
}
"""The first and the next offset that a test on `offset` allows, relative to its value."""


def to_partitions(view: LogView, wanted: RowFilter, requested: Range, at_least: int | None) -> list[LogPartition]:
    ranges = to_ranges(view.parts(*requested), wanted, *requested)
    total = sum(each.size for each in ranges)
    usual = min(max(1, total // PARTITION_BYTES), max(os.cpu_count() or 2, total // MAX_PARTITION_BYTES))
    count = max(usual, at_least or 1)
    if len(ranges) < (at_least or 1):
        ranges = _split(ranges, count)
    return [LogPartition(part, number) for number, part in enumerate(_group(ranges, count))]


def _split(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Splits ranges into about `count` of similar length."""
    total = sum(each.next - each.first for each in ranges)
    step = max(1, -(-total // count))
    return [
        each._replace(first=first, next=min(first + step, each.next), size=max(1, each.size // count))
        for each in ranges
        for first in range(each.first, each.next, step)
    ]


def _group(ranges: Sequence[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """Distributes consecutive ranges over `count` parts of similar size."""
    total = sum(each.size for each in ranges)
    parts: list[list[OffsetRange]] = [[] for _ in range(count)]
    done = 0
    for each in ranges:
        middle = done + each.size / 2
        parts[min(count - 1, int(middle * count / max(1, total)))].append(each)
        done += each.size
    return [part for part in parts if part]
