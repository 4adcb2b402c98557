"""Topics as a lake of Parquet files, by date and hour.

The rows are those of the log with all their columns, each exactly once, whatever is killed and whenever. Workers
write the files themselves and hand back only what they wrote; `lake` says why nothing is lost or doubled. Small
files are merged into large ones as time goes by.

Topics under polycast/, which the broker and its pipelines publish about themselves, are left out unless they are
asked for by name. What is subscribed to counts from the moment on at which it is set: what was passed over
before is not fetched later.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polycast.declare import setting
from polycast.log.folder import log_of
from polycast.log.state import read_state
from polycast.pipelines.base import Pipeline, Run
from polycast.pipelines.compaction import Compactor, Sizes
from polycast.pipelines.fetch import OFFSETS
from polycast.pipelines.lake import Lake, StagedFile
from polycast.pipelines.lakefiles import DESCRIPTION, staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

MIB = 1024 * 1024
MERGES_PER_BATCH = 1


@dataclass(frozen=True, slots=True)
class Settings:
    subscribe: str = setting(">", "patterns of the topics to keep, comma-separated")
    trigger_seconds: float = setting(10.0, "the time from one batch to the next", low=0)
    batch_bytes: int = setting(1024 * MIB, "how much of the log one batch takes at most", low=1)
    target_bytes: int = setting(128 * MIB, "how large files become; those of less than half are merged", low=1)
    compact_files: int = setting(16, "merge when an hour that goes on has so many files of a size", low=2)


def stage(offsets: DataFrame, log: Path, lake: Path, below: str, target_bytes: int, start: int) -> DataFrame:
    """Grain: one row for each file that was staged. What lies before the offset `start` is left out."""
    return offsets.mapInArrow(staging(log, lake, below, target_bytes, start), DESCRIPTION)


class Archive:
    """What happens with each batch."""

    def __init__(self, log: Path, lake: Lake, settings: Settings) -> None:
        self._log = log
        self._lake = lake
        self._settings = settings
        self._compactor = Compactor(lake, sizes_of(settings))

    def add(self, offsets: DataFrame, query: str, batch: int) -> None:
        """As often as Spark likes to bring that batch."""
        lake = self._lake
        if lake.has(query, batch):
            return
        below, size = f"{query}/{batch}", self._settings.target_bytes
        staged = stage(offsets, self._log, lake.folder, below, size, lake.record.next)
        files = [StagedFile(*row) for row in staged.collect()]
        lake.commit(query, batch, files)
        self._compactor.touch([file.hour for file in files])
        self._compactor.run(MERGES_PER_BATCH)


def start(run: Run) -> StreamingQuery:
    settings: Settings = run.settings
    archive = Archive(log_of(run.data.absolute()), open_lake(run), settings)
    offsets = run.messages(settings.subscribe, OFFSETS, maxBytesPerTrigger=settings.batch_bytes)
    writer = run.write(offsets, every=f"{round(settings.trigger_seconds * 1000)} milliseconds")
    return writer.foreachBatch(lambda batch, number: archive.add(batch, run.query_id, number)).start()


def finish(run: Run) -> list[str]:
    lake = open_lake(run)
    merges = Compactor(lake, sizes_of(run.settings)).run()
    files = [file for hour in lake.hours() for file in lake.files(hour)]
    size = sum(file.size for file in files)
    return [f"{lake.folder}: {len(files):,} files, {size:,} bytes, {merges:,} merges"]


def open_lake(run: Run) -> Lake:
    lake = Lake(run.data.absolute() / "lake")
    state = read_state(log_of(run.data))
    lake.open(state.seed if state else "")
    return lake


def sizes_of(settings: Settings) -> Sizes:
    return Sizes(settings.target_bytes, settings.compact_files)


PIPELINE = Pipeline(
    name="archive",
    summary="topics to a lake of Parquet files, by date and hour, each row once",
    settings=Settings,
    start=start,
    finish=finish,
    writes="DIR/lake/date=YYYY-MM-DD/hour=HH/*.parquet",
)
