"""Archives topics to a lake of Parquet files, by date and hour.

The lake has the rows of the log with all columns, each exactly once, even if processes are killed. Small files are
merged over time.

Topics under polycast/, which the broker and its pipelines publish to, are excluded unless `subscribe` names them.
A changed `subscribe` applies from then on; earlier messages are not added later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from polycast.declare import setting
from polycast.log.files.folder import log_folder
from polycast.log.files.state import read_state
from polycast.pipelines.archive.compaction import Compactor, MergeLimits
from polycast.pipelines.archive.files import DESCRIPTION, stage_partition, to_batch
from polycast.pipelines.runtime.checkpoint import batch_end
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun
from polycast.pipelines.runtime.lake import Lake, StagedFile
from polycast.pipelines.runtime.worker_tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from polycast.spark.options import SourceOptions
    from polycast.spark.partitions import LogPartition

log = logging.getLogger("polycast.pipelines")

MIB = 1024 * 1024
MERGES_PER_BATCH = 1


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    subscribe: str = setting(">", "comma-separated patterns of topics to archive")
    trigger_seconds: float = setting(10.0, "interval between batches", low=0)
    batch_bytes: int = setting(1024 * MIB, "maximum bytes of the log per batch", low=1)
    target_bytes: int = setting(128 * MIB, "target file size; files below half of it are merged", low=1)
    compact_files: int = setting(16, "files of similar size in the current hour that start a merge", low=2)


def plan(options: SourceOptions, first: int, after: int) -> list[LogPartition]:
    """Partitions of the offsets from `first` up to, not including, `after`."""
    from polycast.spark.log_view import open_view
    from polycast.spark.partitions import Range, check_range, to_partitions, to_wanted

    view = open_view(options)
    try:
        available = check_range(view, Range(first, max(first, after)), fail_on_data_loss=False)
        if available.first > first:
            lost = f"{first:,}", f"{available.first - 1:,}"
            log.warning("offsets %s to %s were removed before they were archived", *lost)
        return to_partitions(view, to_wanted(options), available, None)
    finally:
        view.close()


def stage(
    spark: SparkSession,
    options: SourceOptions,
    partitions: Sequence[LogPartition],
    lake: Path,
    subfolder: str,
    target_bytes: int,
) -> DataFrame:
    """Grain: one row per staged file."""

    def work(partition: LogPartition) -> Iterator[pa.RecordBatch]:
        yield to_batch(stage_partition(options, partition, lake, subfolder, target_bytes))

    return run_tasks(spark, partitions, work, DESCRIPTION)


class Archive:
    """Processes batches.

    Spark determines the end offset of a batch and distributes the work, but rows do not pass through it: workers
    read them from the log, write the files and return only their names. That is several times as fast.
    """

    def __init__(self, spark: SparkSession, options: SourceOptions, lake: Lake, settings: ArchiveSettings) -> None:
        self._spark = spark
        self._options = options
        self._lake = lake
        self._settings = settings
        self._compactor = Compactor(lake, to_limits(settings))

    def add(self, query: str, batch: int, end: int) -> int:
        """The number of rows added. Idempotent: Spark may repeat a batch. The batch ends before `end`."""
        if self._lake.has(query, batch):
            return 0
        files = self._stage(f"{query}/{batch}", end)
        self._lake.commit(query, batch, files, end)
        self._compactor.touch([file.hour for file in files])
        self._compactor.run(MERGES_PER_BATCH)
        return sum(file.rows for file in files)

    def _stage(self, subfolder: str, end: int) -> list[StagedFile]:
        """Starts where the lake ends, which guarantees each row exactly once."""
        partitions = plan(self._options, self._lake.record.next, end)
        size = self._settings.target_bytes
        staged = stage(self._spark, self._options, partitions, self._lake.folder, subfolder, size)
        return [StagedFile(*row) for row in staged.collect()]


def start(run: PipelineRun) -> StreamingQuery:
    from polycast.spark.options import read_source_options

    settings: ArchiveSettings = run.settings
    folder = log_folder(run.data.absolute())
    options = {"path": str(folder), "subscribe": settings.subscribe, "failOnDataLoss": "false"}
    archive = Archive(run.spark, read_source_options(options, streaming=False), open_lake(run), settings)

    def add(rows: DataFrame, batch: int) -> None:
        run.rows[batch] = archive.add(run.query_id, batch, batch_end(run.checkpoint, batch))

    rows = run.messages(settings.subscribe, "offset long", maxBytesPerTrigger=settings.batch_bytes)
    return run.write(rows, every=settings.trigger_seconds).foreachBatch(add).start()


def finish(run: PipelineRun) -> list[str]:
    lake = open_lake(run)
    merges = Compactor(lake, to_limits(run.settings)).run()
    files = [file for hour in lake.hours() for file in lake.files(hour)]
    size = sum(file.size for file in files)
    return [f"{lake.folder}: {len(files):,} files, {size:,} bytes, {merges:,} merges"]


def open_lake(run: PipelineRun) -> Lake:
    lake = Lake(run.data.absolute() / "lake")
    state = read_state(log_folder(run.data))
    lake.open(state.seed if state else "")
    return lake


def to_limits(settings: ArchiveSettings) -> MergeLimits:
    return MergeLimits(settings.target_bytes, settings.compact_files)


PIPELINE = Pipeline("archive", ArchiveSettings, start, finish, "DIR/lake/date=YYYY-MM-DD/hour=HH/*.parquet")
