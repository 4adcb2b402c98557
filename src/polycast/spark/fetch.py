"""Rows of the log, read by the tasks that need them.

What Spark hands to a task it has taken apart into its own rows and put together again, which costs more than most
of what is done with them. With the option `stretches` the source tells only where the messages are, and whoever
works on them gets them from the log itself:

    where = spark.read.format("polycast").option("path", log).option("stretches", "true").load()
    where.mapInArrow(lambda batches: count(fetch(log, batches, wanted, ["topic", "payload"])), "...")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from polycast.log.files.format import Gap
from polycast.log.files.hot import GroupPosition
from polycast.log.read.query import OffsetRange, RowFilter, query_rows

NAMES = ("first", "next", "size", "segment", "at", "position")
"""A range of offsets and its position in a hot segment, or nulls."""
STRETCHES = StructType([StructField(name, LongType()) for name in NAMES])


def to_batch(stretches: Sequence[OffsetRange]) -> pa.RecordBatch:
    rows = [(*each[:3], *(each.position or (None, None, None))) for each in stretches]
    columns = zip(*rows, strict=True) if rows else [()] * len(NAMES)
    return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], names=list(NAMES))


def from_batch(batch: pa.RecordBatch) -> list[OffsetRange]:
    rows = zip(*(batch[name].to_pylist() for name in NAMES), strict=True)
    return [
        OffsetRange(first, after, size, None if segment is None else GroupPosition(segment, at, position))
        for first, after, size, segment, at, position in rows
    ]


def fetch(
    log: Path,
    batches: Iterable[pa.RecordBatch],
    wanted: RowFilter,
    columns: Sequence[str],
    on_skipped: Callable[[Gap], None] = lambda gap: None,
) -> Iterator[pa.RecordBatch]:
    """The messages of those stretches, in the order of their offsets."""
    for batch in batches:
        yield from query_rows(log, from_batch(batch), wanted, columns, on_skipped)
