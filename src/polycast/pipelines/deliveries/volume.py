"""Estimates the messages, bytes and rates of a pattern. Workers count by topic and minute; Spark aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.read.query import Condition, RowFilter
from polycast.log.read.seek import find_time
from polycast.log.times import MICROS
from polycast.model import Pattern
from polycast.pipelines.runtime.worker_tasks import WorkerTask, log_tasks, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_SECONDS = 60
COLUMNS = ("topic", "time", "payload")
SCHEMA = "topic string, minute long, messages long, bytes long, first long"
COUNTS = pa.schema([("topic", pa.string())] + [(name.split()[0], pa.int64()) for name in SCHEMA.split(", ")[1:]])
GROUPS = [("messages", "sum"), ("bytes", "sum"), ("first", "min")]
SHOWN = 10
"""Number of topics listed."""


def count_by_minute(spark: SparkSession, folder: Path, pattern: Pattern, since: float) -> DataFrame:
    """Grain: one row per topic, minute (since the epoch) and task."""
    wanted = RowFilter((pattern,), (Condition("time", ">=", round(since * MICROS)),))
    tasks = log_tasks(folder, wanted, COLUMNS, find_time(folder, since))
    return run_tasks(spark, tasks, count_task, SCHEMA)


def count_task(task: WorkerTask) -> Iterator[pa.RecordBatch]:
    counted = [to_counts(batch) for batch in task.read()]
    if counted:
        yield from sum_counts(pa.concat_tables(counted)).combine_chunks().to_batches()


def to_counts(batch: pa.RecordBatch) -> pa.Table:
    micros = batch["time"].cast(pa.int64())
    minutes = pc.divide(micros, MINUTE_SECONDS * MICROS)
    sizes = pc.binary_length(batch["payload"]).cast(pa.int64())
    ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    return sum_counts(pa.table([batch["topic"], minutes, ones, sizes, micros], schema=COUNTS))


def sum_counts(counts: pa.Table) -> pa.Table:
    found = counts.group_by(["topic", "minute"]).aggregate(GROUPS)
    columns = [found["topic"], found["minute"], *(found[f"{name}_{how}"] for name, how in GROUPS)]
    return pa.table(columns, schema=COUNTS)


def estimate(spark: SparkSession, folder: Path, pattern: Pattern, since: float, now: float) -> dict[str, Any]:
    """Rates refer to the time that the log covers."""
    from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

    sums = [F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")]
    counts = count_by_minute(spark, folder, pattern, since).persist()
    try:
        total = counts.agg(*sums, F.countDistinct("topic").alias("topics")).first()
        topics = counts.groupBy("topic").agg(*sums).orderBy(F.desc("messages"), "topic").limit(SHOWN).collect()
        peak = counts.groupBy("minute").agg(*sums).orderBy(F.desc("messages"), "minute").first()
    finally:
        counts.unpersist()
    assert total is not None
    seconds = max(now - start_of(folder, since), 1.0)
    messages, size = total["messages"] or 0, total["bytes"] or 0
    return {
        "pattern": str(pattern),
        "since": since,
        "seconds": seconds,
        "messages": messages,
        "bytes": size,
        "messages_per_second": messages / seconds,
        "bytes_per_second": size / seconds,
        "topics": total["topics"],
        "peak_minute": peak["minute"] * MINUTE_SECONDS if peak else None,
        "peak_messages_per_second": peak["messages"] / MINUTE_SECONDS if peak else 0.0,
        "peak_bytes_per_second": peak["bytes"] / MINUTE_SECONDS if peak else 0.0,
        "top": [row.asDict() for row in topics],
    }


def start_of(folder: Path, since: float) -> float:
    """`since`, or the start of the log if that is later."""
    from polycast.log.files.folder import segments
    from polycast.log.read.seek import first_time

    times = (first_time(segment) for segment in segments(folder))
    first = next((micros for micros in times if micros is not None), None)
    return since if first is None else max(since, first / MICROS)
