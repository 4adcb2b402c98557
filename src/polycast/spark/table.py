"""The log as a table in two parts: what is sealed is Parquet, which Spark reads itself; the rest is the source's.

Spark's own reader takes only the columns that a query needs and leaves no work to Python. Both parts end and begin
at one offset, so a segment that is sealed meanwhile is neither missing nor there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls them

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment, segments
from polycast.log.files.sealed import SealedReader, SegmentMetadata
from polycast.log.read.catalog import offset_bounds
from polycast.log.read.reader import covering
from polycast.model import RESERVED_PREFIX, Contains, Everything, Exact, Pattern, Prefix, parse_patterns
from polycast.spark.log_view import find_log
from polycast.spark.schema import ROWS
from polycast.spark.source import NAME

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


class SealedPart(NamedTuple):
    """The segments at the beginning of a log that are Parquet, and the offset after them."""

    paths: list[str]
    next: int


def table(
    spark: SparkSession,
    path: str,
    subscribe: str = ">",
    fail_on_data_loss: bool = True,
    only: Sequence[Pattern] | None = None,
) -> DataFrame:
    """The messages of the log in that folder, under those patterns.

    With `fail_on_data_loss`, segments that are removed meanwhile fail the query that would have read them. With
    `only`, topics that none of these patterns covers are left out as well.
    """
    rows = _table(spark, path, subscribe, fail_on_data_loss)
    return rows if only is None else restrict(rows, only)


def restrict(rows: DataFrame, only: Sequence[Pattern]) -> DataFrame:
    """No other row is ever seen by what is computed on top of this, not even by a cast that fails.

    Spark joins conditions of a query with those of a view, and infers new ones that come first. It does neither
    across a condition that is not deterministic, even if that is always true. `rand() >= 0` is no such barrier:
    Spark knows that it is true, and leaves it out.
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
    """Up to the first segment that is hot, cannot be opened, or misses what was before: who reads it says why."""
    paths: list[str] = []
    after = 0
    for segment in segments(folder):
        about = _about(segment)
        if about is None or (paths and after < segment.first and not covering(about.gaps, after, segment.first)):
            break
        paths.append(str(segment.path.absolute()))
        after = about.next
    return SealedPart(paths, after)


def _about(segment: Segment) -> SegmentMetadata | None:
    if not segment.sealed:
        return None
    try:
        with SealedReader(segment.path) as reader:
            return reader.metadata
    except (LogDamageError, FileNotFoundError):
        return None


def to_condition(pattern: Pattern) -> Column:
    """The rules of `polycast.model`, as Spark can hand them down to its files."""
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
