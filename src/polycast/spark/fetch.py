"""Reads rows of the log inside the Spark tasks that process them.

Spark converts the rows of a source to its own format and back to Arrow before a Python function sees them; that
costs more than most functions. With the option `stretches` the source returns only the offset ranges, and the
function reads the rows from the log itself:

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
"""The fields of an offset range and of its file position; the position is null if unknown."""
STRETCHES = StructType([StructField(name, LongType()) for name in NAMES])


def to_batch(ranges: Sequence[OffsetRange]) -> pa.RecordBatch:
    rows = [(*each[:3], *(each.position or (None, None, None))) for each in ranges]
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
    """The messages of these ranges, in order of offset."""
    for batch in batches:
        yield from query_rows(log, from_batch(batch), wanted, columns, on_skipped)
