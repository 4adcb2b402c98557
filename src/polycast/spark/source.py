"""The data source `polycast`: reads the log as a table or stream, and publishes rows as messages.

    offset long · topic string · sequence long · time timestamp · dialect string · format string · payload binary ·
    source string

Spark pickles readers to other processes: they hold paths and numbers only, and open files where they read. The
position of a stream is in Spark's checkpoint, as {"offset": N}, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from polycast.log.read.query import Condition, RowFilter
from polycast.spark.error_text import one_line_errors
from polycast.spark.fetch import STRETCHES
from polycast.spark.filters import to_conditions
from polycast.spark.log_view import open_view
from polycast.spark.options import SourceOptions, read_sink_options, read_source_options
from polycast.spark.partition_reader import read_partition
from polycast.spark.partitions import check_range, find_range, narrow, to_partitions, to_wanted
from polycast.spark.schema import ROWS, to_columns
from polycast.spark.sink import BatchSink, StreamSink
from polycast.spark.stream import LogStream

NAME = "polycast"


class PolycastSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return STRETCHES if self.options.get("stretches", "").lower() == "true" else ROWS

    def reader(self, schema: StructType) -> DataSourceReader:
        with one_line_errors():
            return LogReader(read_source_options(self.options, streaming=False), self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        with one_line_errors():
            return LogStream(read_source_options(self.options, streaming=True), self._columns(schema))

    def _columns(self, schema: StructType) -> list[str]:
        return to_columns(schema, self.schema())

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        with one_line_errors():
            return BatchSink(read_sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        with one_line_errors():
            return StreamSink(read_sink_options(self.options), schema)


class PushingSource(PolycastSource):
    """For sessions with filter push-down enabled. Spark rejects a reader with `pushFilters` in other sessions."""

    def reader(self, schema: StructType) -> DataSourceReader:
        with one_line_errors():
            return PushingReader(read_source_options(self.options, streaming=False), self._columns(schema))


class LogReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = columns
        self.conditions: list[Condition] = []

    def partitions(self) -> Sequence[InputPartition]:
        with one_line_errors():
            view = open_view(self.options)
            try:
                requested = find_range(view, self.options)
                available = check_range(view, requested, self.options.fail_on_data_loss)
                narrowed = narrow(available, self.conditions)
                return to_partitions(view, self._wanted(), narrowed, self.options.min_partitions)
            finally:
                view.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, self._wanted(), self.columns, partition)

    def _wanted(self) -> RowFilter:
        return to_wanted(self.options, self.conditions)


class PushingReader(LogReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.conditions, left = to_conditions(filters)
        return left
