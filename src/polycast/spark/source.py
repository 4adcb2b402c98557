"""The format `polycast`: the log as a table and as a stream, and rows as messages.

    offset long · topic string · sequence long · time timestamp · dialect string · format string · payload binary ·
    source string

Readers go to other processes: they hold paths and numbers, and open files where they read. Where a stream has come
to is in Spark's checkpoint, as {"offset": N}, and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from polycast.errors import GoneError, UsageError
from polycast.log.files.format import Gap
from polycast.log.read.query import Condition, Wanted
from polycast.spark.faults import telling
from polycast.spark.fetch import STRETCHES, to_batch
from polycast.spark.filters import to_conditions
from polycast.spark.options import SourceOptions, read_sink_options, read_source_options
from polycast.spark.plan import Share, check_range, find_range, narrow, share_out, to_wanted
from polycast.spark.views import open_view

log = logging.getLogger("polycast.spark")

NAME = "polycast"
ROWS = StructType(
    [
        StructField("offset", LongType()),
        StructField("topic", StringType()),
        StructField("sequence", LongType()),
        StructField("time", TimestampType()),
        StructField("dialect", StringType()),
        StructField("format", StringType()),
        StructField("payload", BinaryType()),
        StructField("source", StringType()),
    ]
)


class PolycastSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return STRETCHES if self.options.get("stretches", "").lower() == "true" else ROWS

    def reader(self, schema: StructType) -> DataSourceReader:
        with telling():
            return LogReader(read_source_options(self.options, streaming=False), self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        from polycast.spark.stream import LogStream

        with telling():
            return LogStream(read_source_options(self.options, streaming=True), self._columns(schema))

    def _columns(self, schema: StructType) -> list[str]:
        return to_columns(schema, self.schema())

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from polycast.spark.sink import BatchSink

        with telling():
            return BatchSink(read_sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        from polycast.spark.sink import StreamSink

        with telling():
            return StreamSink(read_sink_options(self.options), schema)


class PushingSource(PolycastSource):
    """For sessions that push filters down. Others refuse a reader that only could take them."""

    def reader(self, schema: StructType) -> DataSourceReader:
        with telling():
            return PushingReader(read_source_options(self.options, streaming=False), self._columns(schema))


class LogReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = columns
        self.conditions: list[Condition] = []

    def partitions(self) -> Sequence[InputPartition]:
        with telling():
            view = open_view(self.options)
            try:
                asked = find_range(view, self.options)
                there = check_range(view, asked, self.options.fail_on_data_loss)
                return share_out(view, self._wanted(), narrow(there, self.conditions), self.options.min_partitions)
            finally:
                view.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_share(self.options, self._wanted(), self.columns, partition)

    def _wanted(self) -> Wanted:
        return to_wanted(self.options, self.conditions)


class PushingReader(LogReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.conditions, left = to_conditions(filters)
        return left


def read_share(
    options: SourceOptions, wanted: Wanted, columns: Sequence[str], share: InputPartition
) -> Iterator[pa.RecordBatch]:
    """In the task. Where there is nothing to read, Spark asks for one share that is none."""
    if not isinstance(share, Share):
        return
    if options.stretches:
        yield to_batch(share.stretches).select(columns)
        return
    with telling():
        view = open_view(options)
        try:
            yield from view.scan(share.stretches, wanted, columns, to_loss(options.fail_on_data_loss))
        finally:
            view.close()


def to_loss(fail: bool) -> Callable[[Gap], None]:
    """What to do about messages that should be there."""

    def lose(gap: Gap) -> None:
        what = f"offsets {gap.first:,} to {gap.next - 1:,} cannot be read: {gap.reason}"
        if fail:
            raise GoneError(what, "failOnDataLoss=false goes on without them")
        log.warning("%s", what)

    return lose


def to_columns(schema: StructType, whole: StructType = ROWS) -> list[str]:
    """The columns that are asked for: all, or some of them."""
    known = {field.name: field.dataType for field in whole.fields}
    for field in schema.fields:
        if field.name not in known:
            rows = "messages" if whole is ROWS else "stretches"
            raise UsageError(f"{rows} have no column {field.name!r}", f"they have {', '.join(known)}")
        if field.dataType != known[field.name]:
            right = known[field.name].simpleString()
            found = field.dataType.simpleString()
            raise UsageError(f"the column {field.name} is {right}, not {found}", f"ask for {right}, and cast it")
    return [field.name for field in schema.fields]
