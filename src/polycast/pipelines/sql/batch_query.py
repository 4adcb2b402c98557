"""Runs SQL queries over the log.

Each pattern in a query is a view of the log. Results are returned batch by batch, so a large result need not fit
in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- the usual alias
from pyspark.sql.types import CalendarIntervalType, DataType, VariantType, YearMonthIntervalType

from polycast.model import Pattern
from polycast.pipelines.sql.gate import CheckedQuery, check_query, to_frame
from polycast.pipelines.sql.query_errors import query_errors
from polycast.pipelines.sql.statement import Statement, to_views
from polycast.spark.table import table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NOT_ARROW = (CalendarIntervalType, YearMonthIntervalType)


def run_query(spark: SparkSession, log: Path, statement: Statement) -> DataFrame:
    """The lazy result."""
    checked = check_query(spark, statement.text)
    return run_checked(spark, log, checked, to_views(statement, checked))


def run_checked(
    spark: SparkSession,
    log: Path,
    checked: CheckedQuery,
    views: Mapping[str, str],
    only: Sequence[Pattern] | None = None,
) -> DataFrame:
    """`only` restricts the views to topics that one of these patterns matches."""
    for name, patterns in views.items():
        create_view(name, table(spark, str(log), patterns, fail_on_data_loss=False, only=only))
    return to_frame(spark, checked)


def create_view(name: str, rows: DataFrame) -> None:
    escaped = name.replace("`", "``")
    rows.createOrReplaceTempView(f"`{escaped}`")


def to_batches(rows: DataFrame, query: str) -> Iterator[pa.RecordBatch]:
    """The rows in order, one partition at a time. Column names may repeat."""
    packed = _to_arrow(rows).mapInArrow(_pack, "batch binary")
    with query_errors(query):
        for row in packed.toLocalIterator(prefetchPartitions=True):
            with pa.ipc.open_stream(row["batch"]) as stream:
                for batch in stream:
                    yield batch.rename_columns(rows.columns)


def _to_arrow(rows: DataFrame) -> DataFrame:
    """Gives columns unique names, and converts types that Arrow lacks."""
    numbered = rows.toDF(*map(str, range(len(rows.columns))))
    return numbered.select([_to_column(F.col(field.name), field.dataType) for field in numbered.schema.fields])


def _to_column(column: Column, kind: DataType) -> Column:
    if isinstance(kind, VariantType):
        return F.to_json(column)
    return column.cast("string") if isinstance(kind, NOT_ARROW) else column


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in the task. Packs a batch into one cell, because Spark transfers rows one by one."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"])
