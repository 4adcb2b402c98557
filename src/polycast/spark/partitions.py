"""From options to what is read: a range of offsets, the rows wanted in it, and how they are shared out."""

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
"""Less is not worth a partition of its own."""
MAX_PARTITION_BYTES = 256 * 1024 * 1024


class Range(NamedTuple):
    start: int
    stop: int


class LogPartition(InputPartition):
    """What one task reads."""

    def __init__(self, stretches: Sequence[OffsetRange]) -> None:
        self.stretches = list(stretches)


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
    place = default if options.start is None else options.start
    if isinstance(place, dict):
        return _first_of_sequences(view, options, place)
    return _offset(view, place)


def find_range(view: LogView, options: SourceOptions) -> Range:
    """Of a batch."""
    start = find_start(view, options, EARLIEST)
    if options.end_micros is not None:
        stop = view.at_time(options.end_micros)
    elif options.end is None or isinstance(options.end, dict):
        stop = view.next()
    else:
        stop = _offset(view, options.end)
    return Range(start, max(start, stop))


def _first_of_sequences(view: LogView, options: SourceOptions, sequences: dict[str, int]) -> int:
    """Topics that are not named begin with what there is."""
    named = all(
        isinstance(each, Exact) and each.value in sequences for each in options.patterns or (Everything(),)
    )
    return max(view.first(), view.at_sequences(sequences)) if named else view.first()


def _offset(view: LogView, place: Position) -> int:
    if place == EARLIEST:
        return view.first()
    if place == LATEST:
        return view.next()
    assert isinstance(place, int)
    return place


def check_range(view: LogView, wanted: Range, fail_on_data_loss: bool) -> Range:
    """Where it begins before the log does, or after its end, something is not there that was asked for."""
    first = view.first()
    if wanted.start < first and wanted.start < wanted.stop and fail_on_data_loss:
        last = min(first, wanted.stop) - 1
        raise GoneError(
            f"offsets {wanted.start:,} to {last:,} are gone: the log begins at {first:,}",
            "failOnDataLoss=false goes on without them; log.retain_seconds and log.retain_bytes keep more",
        )
    beyond = max(wanted.start, wanted.stop)
    if beyond > first and beyond > (after := view.next()):
        raise GoneError(
            f"the log ends before offset {after:,}, and {beyond:,} was asked for",
            "is this the log that the checkpoint was made with? else take another checkpointLocation",
        )
    return Range(max(wanted.start, first), max(wanted.stop, first))


def narrow(wanted: Range, conditions: Sequence[Condition]) -> Range:
    """What the conditions leave of a range."""
    start, stop = wanted
    for condition in conditions:
        if condition.column == "offset" and condition.test in BOUNDS:
            least, after = BOUNDS[condition.test]
            start = start if least is None else max(start, condition.value + least)
            stop = stop if after is None else min(stop, condition.value + after)
    return Range(start, max(start, stop))


BOUNDS: dict[str, tuple[int | None, int | None]] = {
    "=": (0, 1),
    ">": (1, None),
    ">=": (0, None),
    "<": (None, 0),
    "<=": (None, 1),
}
"""How far from its value a test moves the begin and the end of a range."""


def to_partitions(view: LogView, wanted: RowFilter, range_: Range, at_least: int | None) -> list[LogPartition]:
    stretches = to_ranges(view.pieces(*range_), wanted, *range_)
    total = sum(stretch.size for stretch in stretches)
    usual = min(max(1, total // PARTITION_BYTES), max(os.cpu_count() or 2, total // MAX_PARTITION_BYTES))
    count = max(usual, at_least or 1)
    if len(stretches) < (at_least or 1):
        stretches = _split(stretches, count)
    return [LogPartition(part) for part in _group(stretches, count)]


def _split(stretches: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Into so many of about the same length, where there are as many offsets."""
    total = sum(stretch.next - stretch.first for stretch in stretches)
    step = max(1, -(-total // count))
    return [
        stretch._replace(first=first, next=min(first + step, stretch.next), size=max(1, stretch.size // count))
        for stretch in stretches
        for first in range(stretch.first, stretch.next, step)
    ]


def _group(stretches: Sequence[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """In so many parts of about the same size, each of stretches that follow each other."""
    total = sum(stretch.size for stretch in stretches)
    parts: list[list[OffsetRange]] = [[] for _ in range(count)]
    done = 0
    for stretch in stretches:
        middle = done + stretch.size / 2
        parts[min(count - 1, int(middle * count / max(1, total)))].append(stretch)
        done += stretch.size
    return [part for part in parts if part]
