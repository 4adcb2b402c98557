"""Topics as a lake of Parquet files, by date and hour.

The rows are those of the log with all their columns, each exactly once, whatever is killed and whenever. Small
files are merged into large ones as time goes by.

Topics under polycast/, which the broker and its pipelines publish about themselves, are left out unless they are
asked for by name. What is subscribed to counts from the moment on at which it is set: what was passed over
before is not fetched later.
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
from polycast.log.files.format import SCHEMA
from polycast.log.files.state import read_state
from polycast.pipelines import SUMMARIES
from polycast.pipelines.archive.compaction import Compactor, MergeLimits
from polycast.pipelines.archive.files import DESCRIPTION, Read, to_stager
from polycast.pipelines.archive.lake import Lake, StagedFile
from polycast.pipelines.runtime.checkpoint import batch_end
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun

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
    subscribe: str = setting(">", "patterns of the topics to keep, comma-separated")
    trigger_seconds: float = setting(10.0, "the time from one batch to the next", low=0)
    batch_bytes: int = setting(1024 * MIB, "how much of the log one batch takes at most", low=1)
    target_bytes: int = setting(128 * MIB, "how large files become; those of less than half are merged", low=1)
    compact_files: int = setting(16, "merge when an hour that goes on has so many files of a size", low=2)


def plan(options: SourceOptions, start: int, stop: int) -> list[LogPartition]:
    """What the workers read, of the offsets from `start` to before `stop`."""
    from polycast.spark.log_view import open_view
    from polycast.spark.partitions import Range, check_range, to_partitions, to_wanted

    view = open_view(options)
    try:
        there = check_range(view, Range(start, max(start, stop)), fail_on_data_loss=False)
        if there.start > start:
            log.warning(
                "offsets %s to %s are gone before they were archived", f"{start:,}", f"{there.start - 1:,}"
            )
        return to_partitions(view, to_wanted(options), there, None)
    finally:
        view.close()


def to_reader(options: SourceOptions, shares: Sequence[LogPartition]) -> Read:
    def read(number: int) -> Iterator[pa.RecordBatch]:
        from polycast.spark.partition_reader import read_partition
        from polycast.spark.partitions import to_wanted

        return read_partition(options, to_wanted(options), SCHEMA.names, shares[number])

    return read


def stage(
    spark: SparkSession, read: Read, shares: int, lake: Path, subfolder: str, target_bytes: int
) -> DataFrame:
    """Grain: one row for each file that was staged."""
    return spark.range(0, shares, 1, shares).mapInArrow(
        to_stager(read, lake, subfolder, target_bytes), DESCRIPTION
    )


class Archive:
    """What happens with each batch.

    Spark says how far it goes and shares the work out, but the rows do not pass through it: workers read them from
    the log, write the files and hand back only what they wrote. That is several times as fast.
    """

    def __init__(self, spark: SparkSession, options: SourceOptions, lake: Lake, settings: ArchiveSettings) -> None:
        self._spark = spark
        self._options = options
        self._lake = lake
        self._settings = settings
        self._compactor = Compactor(lake, to_limits(settings))

    def add(self, query: str, batch: int, end: int) -> int:
        """As often as Spark likes to bring that batch, which ends before `end`. How many rows were added."""
        if self._lake.has(query, batch):
            return 0
        files = self._stage(f"{query}/{batch}", end)
        self._lake.commit(query, batch, files, end)
        self._compactor.touch([file.hour for file in files])
        self._compactor.run(MERGES_PER_BATCH)
        return sum(file.rows for file in files)

    def _stage(self, subfolder: str, end: int) -> list[StagedFile]:
        """It begins where the lake ends: nothing else makes each row be there once."""
        shares = plan(self._options, self._lake.record.next, end)
        if not shares:
            return []
        read = to_reader(self._options, shares)
        size = self._settings.target_bytes
        staged = stage(self._spark, read, len(shares), self._lake.folder, subfolder, size)
        return [StagedFile(*row) for row in staged.collect()]


def start(run: PipelineRun) -> StreamingQuery:
    from polycast.spark.options import read_source_options

    settings: ArchiveSettings = run.settings
    folder = log_folder(run.data.absolute())
    asked = {"path": str(folder), "subscribe": settings.subscribe, "failOnDataLoss": "false"}
    archive = Archive(run.spark, read_source_options(asked, streaming=False), open_lake(run), settings)

    def add(rows: DataFrame, batch: int) -> None:
        run.rows[batch] = archive.add(run.query_id, batch, batch_end(run.checkpoint, batch))

    rows = run.messages(settings.subscribe, "offset long", maxBytesPerTrigger=settings.batch_bytes)
    every = f"{round(settings.trigger_seconds * 1000)} milliseconds"
    return run.write(rows, every=every).foreachBatch(add).start()


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


PIPELINE = Pipeline(
    name="archive",
    summary=SUMMARIES["archive"],
    settings=ArchiveSettings,
    start=start,
    finish=finish,
    writes="DIR/lake/date=YYYY-MM-DD/hour=HH/*.parquet",
)
