"""Publishes rows as messages, exactly once.

Each task stages its rows at the broker, invisible to subscribers. When all tasks are done, the driver commits the
stages as one batch under a batch id. The broker ignores a batch whose id it already knows, so a repeated commit
publishes nothing. The batch id of a stream is the query id, which the checkpoint stores, and the batch number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from polycast.client.staging import Stager, to_frames
from polycast.errors import RemoteError, UsageError
from polycast.spark.brokers import Brokers
from polycast.spark.error_text import one_line_errors
from polycast.spark.options import SinkOptions
from polycast.spark.replayable import ReplayableFrames

log = logging.getLogger("polycast.spark")

QUERY_ID = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"

COLUMN_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "payload": (StringType, BinaryType),
    "format": (StringType,),
}


@dataclass(frozen=True)
class TaskStage(WriterCommitMessage):
    """Rows that one task staged."""

    batch_id: str
    stage: str
    rows: int


class BatchSink(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UsageError("messages cannot be overwritten", 'use mode("append")')
        self.options = options
        self.has_topic = check_schema(schema, options.topic)
        self.batch_id = options.batch_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStage:
        return stage(self.options, self.batch_id, to_messages(iterator, self.options.topic, self.has_topic))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort(self.options, messages)


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.has_topic = check_schema(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStage:
        context = _task()
        batch_id = f"{context.getLocalProperty(QUERY_ID)}:{context.getLocalProperty(BATCH)}"
        return stage(self.options, batch_id, to_messages(iterator, self.options.topic, self.has_topic))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort(self.options, messages)


# -- in a task -------------------------------------------------------------------------------------------


def stage(options: SinkOptions, batch_id: str, messages: Iterable[pa.RecordBatch]) -> TaskStage:
    """The stage name is unique per task attempt. Without rows the broker is not contacted."""
    context = _task()
    name = f"{context.partitionId()}.{context.taskAttemptId()}"
    with one_line_errors(), closing(ReplayableFrames(to_frames(messages))) as frames:
        rows = stage_frames(options, batch_id, name, frames) if frames.has_rows() else 0
        return TaskStage(batch_id, name, rows)


def stage_frames(options: SinkOptions, batch_id: str, name: str, frames: ReplayableFrames) -> int:
    """Every attempt replaces the stage."""

    def attempt(at: str) -> int:
        with Stager(at, batch_id) as stager:
            return stager.stage_frames(name, frames)

    return Brokers(options.at, options.retry_seconds).run(attempt)


def to_messages(batches: Iterable[pa.RecordBatch], topic: str, has_topic: bool) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        names, columns = (
            ["topic", "payload"],
            [_topics(batch, topic, has_topic), batch["payload"].cast(pa.binary())],
        )
        if "format" in batch.schema.names:
            names, columns = [*names, "format"], [*columns, batch["format"]]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _topics(batch: pa.RecordBatch, topic: str, has_topic: bool) -> pa.Array:
    return batch["topic"] if has_topic else pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


# -- in the driver ---------------------------------------------------------------------------------------


def commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Without rows the broker is not contacted. Repeated after every error: a repeat publishes nothing."""
    staged = [each for each in messages if isinstance(each, TaskStage) and each.rows]

    def attempt(at: str) -> None:
        with Stager(at, staged[0].batch_id) as stager:
            stager.commit([each.stage for each in staged], sum(each.rows for each in staged))

    if staged:
        with one_line_errors():
            Brokers(options.at, options.retry_seconds).run(attempt)


def abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Tries once: the broker also expires stages, as those of failed tasks."""
    staged = [each for each in messages if isinstance(each, TaskStage) and each.rows]

    def attempt(at: str) -> None:
        with Stager(at, staged[0].batch_id) as stager:
            stager.abort([each.stage for each in staged])

    try:
        if staged:
            Brokers(options.at, retry_seconds=0).run(attempt)
    except RemoteError as error:
        log.warning("the stages of batch %s are not dropped until they expire: %s", staged[0].batch_id, error)


# -- schema ----------------------------------------------------------------------------------------------


def check_schema(schema: StructType, topic: str) -> bool:
    """Whether rows have a column `topic`. Other unknown columns are ignored, as in Spark's Kafka sink."""
    found = {field.name: field.dataType for field in schema.fields}
    if "payload" not in found:
        raise UsageError(f"rows have no column payload, only {', '.join(found)}", "select(... as payload)")
    if "topic" not in found and not topic:
        raise UsageError("rows have no column topic", 'option("topic", "name") sets one for all rows')
    for name, kinds in COLUMN_TYPES.items():
        if name in found and not isinstance(found[name], kinds):
            right = " or ".join(kind.typeName() for kind in kinds)
            hint = "convert structs with to_json(...), other types with cast(... as string)"
            raise UsageError(f"the column {name} is {found[name].simpleString()}, not {right}", hint)
    return "topic" in found
