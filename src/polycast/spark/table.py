"""The log as a table: Spark's Parquet reader for sealed segments, the data source for the rest.

Spark's reader loads only the columns that a query needs and involves no Python. The two parts meet at one offset,
so a segment that is sealed in between is neither missed nor read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment, segments
from polycast.log.files.sealed import SealedReader, SegmentMetadata
from polycast.log.read.catalog import offset_bounds
from polycast.log.read.gaps import covering
from polycast.model import RESERVED_PREFIX, Contains, Everything, Exact, Pattern, Prefix, parse_patterns
from polycast.spark.log_view import find_log
from polycast.spark.schema import ROWS
from polycast.spark.source import NAME

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


class SealedPart(NamedTuple):
    """The leading sealed segments of a log, and the offset after them."""

    paths: list[str]
    next: int


def table(
    spark: SparkSession,
    path: str,
    subscribe: str = ">",
    fail_on_data_loss: bool = True,
    only: Sequence[Pattern] | None = None,
) -> DataFrame:
    """The messages of a log whose topics match `subscribe`.

    With `fail_on_data_loss`, a query fails if a segment is removed before it is read. `only` restricts the rows
    further, to topics that one of these patterns matches.
    """
    rows = _table(spark, path, subscribe, fail_on_data_loss)
    return rows if only is None else restrict(rows, only)


def restrict(rows: DataFrame, only: Sequence[Pattern]) -> DataFrame:
    """Hides all other rows from expressions evaluated on top, even from a cast that fails.

    Spark merges a query's conditions with those of a view and may evaluate the query's first. A non-deterministic
    condition is a barrier that it does not move conditions across. `rand() >= 0` is not: Spark simplifies it away.
    """
    allowed = reduce(or_, map(to_condition, only), F.lit(False))
    return rows.where(allowed).where(F.monotonically_increasing_id() >= F.lit(0))


def _table(spark: SparkSession, path: str, subscribe: str, fail_on_data_loss: bool) -> DataFrame:
    patterns = parse_patterns(subscribe)
    folder = find_log(path)
    sealed = find_sealed(folder)
    fails = str(fail_on_data_loss).lower()
    source = spark.read.format(NAME).option("path", str(folder.absolute())).option("subscribe", subscribe)
    source = source.option("failOnDataLoss", fails)
    if not sealed.paths:
        return source.load()
    files = spark.read.schema(ROWS).options(ignoreMissingFiles=not fail_on_data_loss, **CHECKED)
    rows = files.parquet(*sealed.paths).where(reduce(or_, map(to_condition, patterns)))
    _, end = offset_bounds(folder)
    if sealed.next >= end:
        return rows
    return rows.union(source.option("startingOffsets", sealed.next).load())


def find_sealed(folder: Path) -> SealedPart:
    """Stops at the first segment that is hot, unreadable or after an unknown gap; the source reads the rest."""
    paths: list[str] = []
    after = 0
    for segment in segments(folder):
        metadata = _read_metadata(segment)
        if metadata is None:
            break
        if paths and after < segment.first and not covering(metadata.gaps, after, segment.first):
            break
        paths.append(str(segment.path.absolute()))
        after = metadata.next
    return SealedPart(paths, after)


def _read_metadata(segment: Segment) -> SegmentMetadata | None:
    if not segment.sealed:
        return None
    try:
        with SealedReader(segment.path) as reader:
            return reader.metadata
    except (LogDamageError, FileNotFoundError):
        return None


def to_condition(pattern: Pattern) -> Column:
    """The rules of `polycast.model` as a condition that Spark pushes down to Parquet."""
    topic = F.col("topic")
    match pattern:
        case Exact(value):
            return topic == F.lit(value)
        case Everything():
            return ~topic.startswith(RESERVED_PREFIX)
        case Prefix(value):
            found = topic.startswith(value)
        case Contains(value):
            found = topic.contains(value)
    return found if value.startswith(RESERVED_PREFIX) else found & to_condition(Everything())
