"""Reads one partition of the log inside a Spark task, for batch queries and streams."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from polycast.errors import GoneError
from polycast.log.files.format import Gap
from polycast.log.read.query import RowFilter
from polycast.spark.error_text import one_line_errors
from polycast.spark.fetch import to_batch
from polycast.spark.log_view import open_view
from polycast.spark.options import SourceOptions
from polycast.spark.partitions import LogPartition

log = logging.getLogger("polycast.spark")


def read_partition(
    options: SourceOptions, wanted: RowFilter, columns: Sequence[str], partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Without partitions to read, Spark passes a single `InputPartition(None)`."""
    if not isinstance(partition, LogPartition):
        return
    if options.stretches:
        yield to_batch(partition.ranges).select(columns)
        return
    with one_line_errors():
        view = open_view(options, partition.number)
        try:
            yield from view.query_rows(
                partition.ranges, wanted, columns, to_gap_handler(options.fail_on_data_loss)
            )
        finally:
            view.close()


def to_gap_handler(fail: bool) -> Callable[[Gap], None]:
    """Handles missing messages: raises an error, or logs a warning.

    Messages that never became durable are no loss: their publishers got an error.
    """

    def handle(gap: Gap) -> None:
        if gap.refused:
            return
        message = f"offsets {gap.first:,} to {gap.next - 1:,} cannot be read: {gap.reason}"
        if fail:
            hint = "failOnDataLoss=false skips them"
            if gap.damaged:
                hint += "; polycast log info lists the damage"
            raise GoneError(message, hint)
        log.warning("%s", message)

    return handle
