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
    options: SourceOptions, wanted: RowFilter, columns: Sequence[str], share: InputPartition
) -> Iterator[pa.RecordBatch]:
    """In the task. Where there is nothing to read, Spark asks for one share that is none."""
    if not isinstance(share, LogPartition):
        return
    if options.stretches:
        yield to_batch(share.stretches).select(columns)
        return
    with one_line_errors():
        view = open_view(options)
        try:
            yield from view.query_rows(share.stretches, wanted, columns, to_gap_handler(options.fail_on_data_loss))
        finally:
            view.close()


def to_gap_handler(fail: bool) -> Callable[[Gap], None]:
    """What to do about messages that should be there."""

    def lose(gap: Gap) -> None:
        what = f"offsets {gap.first:,} to {gap.next - 1:,} cannot be read: {gap.reason}"
        if fail:
            raise GoneError(what, "failOnDataLoss=false goes on without them")
        log.warning("%s", what)

    return lose
