"""An index that lets `polycast find` pass over most of the log.

Workers read the log themselves, block by block, and hand back one filter for each; `blocks` says how these are kept
and `grams` what they can tell. The stream tells how far the log has come. Blocks that are there already are not made
again, so that a batch that comes twice changes nothing. What the log has in its last, unfinished block is not in the
index: there `find` looks at every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from polycast.declare import setting
from polycast.log.folder import log_of
from polycast.log.places import first_offset
from polycast.log.scan import Wanted
from polycast.pipelines.base import Pipeline, Run
from polycast.pipelines.blocks import Index, to_rows
from polycast.pipelines.deliveries import end_of
from polycast.pipelines.grams import Builder
from polycast.pipelines.sweep import Part, parts_of_log, sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILTERS = "first long, next long, rows long, grams binary, tokens binary, escapes boolean"
COLUMNS = ("offset", "payload")
EVERYTHING = ">,polycast/>"
"""What is looked for may be anywhere."""
BLOCKS_PER_JOB = 64


@dataclass(frozen=True, slots=True)
class Settings:
    trigger_seconds: float = setting(60.0, "the time from one batch to the next", low=0)


def make_filters(spark: SparkSession, folder: Path, blocks: Sequence[int], size: int) -> DataFrame:
    """Grain: one row for each block of the log. `blocks` are the offsets they begin at."""
    parts = [_part_of(folder, first, first + size) for first in blocks]
    return sweep(spark, parts, filter_part, FILTERS)


def _part_of(folder: Path, first: int, after: int) -> tuple[int, int, Sequence[Part]]:
    return first, after, parts_of_log(folder, Wanted(), COLUMNS, first, after)


def filter_part(block: tuple[int, int, Sequence[Part]]) -> Iterator[pa.RecordBatch]:
    """In a worker."""
    first, after, parts = block
    built, rows = Builder(), 0
    for part in parts:
        for batch in part.read():
            built.add(batch["payload"])
            rows += batch.num_rows
    yield to_rows([(first, after, built, rows)])


def start(run: Run) -> StreamingQuery:
    rows = run.messages(EVERYTHING, "offset long")
    writer = run.write(rows, every=f"{run.settings.trigger_seconds} seconds")
    return writer.foreachBatch(lambda _, number: extend(run.spark, run.data, end_of(run, number))).start()


def extend(spark: SparkSession, data: Path, end: int) -> None:
    """Indexes what is not indexed yet, up to that offset."""
    folder = log_of(data)
    index = Index(data / "index")
    missing = index.missing(first_offset(folder) or 0, end)
    for place in range(0, len(missing), BLOCKS_PER_JOB):
        some = missing[place : place + BLOCKS_PER_JOB]
        index.write(make_filters(spark, folder, some, index.block).toArrow())


def finish(run: Run) -> list[str]:
    files = Index(run.data / "index").files()
    size = sum(file.path.stat().st_size for file in files)
    end = max((file.next for file in files), default=0)
    return [f"{run.data / 'index'}: {len(files):,} files, {size:,} bytes, offsets up to {end:,}"]


PIPELINE = Pipeline(
    name="index",
    summary="filters over payloads that let `polycast find` pass over most of the log",
    settings=Settings,
    start=start,
    finish=finish,
    writes="DIR/index/*.parquet",
)
