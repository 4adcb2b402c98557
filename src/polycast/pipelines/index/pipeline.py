"""Builds an index with which `polycast find` skips most of the log.

Workers read the log block by block and return one filter per block; `blocks` stores them, `grams` defines them.
The stream only provides the end offset of the log. Existing blocks are not built again, so a repeated batch
changes nothing. The last, incomplete block is not indexed: `find` reads all of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from polycast.declare import setting
from polycast.log.files.folder import log_folder
from polycast.log.read.query import RowFilter
from polycast.log.read.seek import first_offset
from polycast.pipelines.index.blocks import BLOCK_OFFSETS, PayloadIndex, index_of, to_rows
from polycast.pipelines.index.grams import FilterBuilder
from polycast.pipelines.runtime.checkpoint import batch_end
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun
from polycast.pipelines.runtime.worker_tasks import WorkerTask, log_tasks, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILTERS = "first long, next long, rows long, grams binary, tokens binary, escapes boolean"
COLUMNS = ("offset", "payload")
EVERYTHING = ">,polycast/>"
"""The index covers all topics, including reserved ones."""
BLOCKS_PER_JOB = 64
TASK_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class IndexSettings:
    trigger_seconds: float = setting(60.0, "interval between batches", low=0)
    block_messages: int = setting(BLOCK_OFFSETS, "number of messages per filter", low=1)


class BlockTask(NamedTuple):
    """Adjacent blocks for one worker, and the reads that cover them."""

    blocks: tuple[int, ...]
    size: int
    reads: Sequence[WorkerTask]


def make_filters(spark: SparkSession, folder: Path, blocks: Sequence[int], size: int) -> DataFrame:
    """Grain: one row per block. `blocks` are their first offsets."""
    tasks = [
        BlockTask(some, size, log_tasks(folder, RowFilter(), COLUMNS, some[0], some[-1] + size))
        for some in (tuple(blocks[n : n + TASK_BLOCKS]) for n in range(0, len(blocks), TASK_BLOCKS))
    ]
    return run_tasks(spark, tasks, filter_blocks, FILTERS)


def filter_blocks(task: BlockTask) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    built = {first: FilterBuilder() for first in task.blocks}
    rows = dict.fromkeys(task.blocks, 0)
    for read in task.reads:
        for batch in read.read():
            for first, some in split(batch, task.size):
                if first in built:
                    built[first].add(some["payload"])
                    rows[first] += some.num_rows
    yield to_rows((first, first + task.size, built[first], rows[first]) for first in task.blocks)


def split(batch: pa.RecordBatch, size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits rows, sorted by offset, by block."""
    start = 0
    while start < batch.num_rows:
        first = batch["offset"][start].as_py() // size * size
        count = pc.sum(pc.less(batch["offset"].slice(start), first + size)).as_py()
        yield first, batch.slice(start, count)
        start += count


def start(run: PipelineRun) -> StreamingQuery:
    rows = run.messages(EVERYTHING, "offset long")
    writer = run.write(rows, every=run.settings.trigger_seconds)
    index = PayloadIndex(index_of(run.data), run.settings.block_messages)
    folder = log_folder(run.data)
    return writer.foreachBatch(
        lambda _, number: extend(run.spark, folder, index, batch_end(run.checkpoint, number))
    ).start()


def extend(spark: SparkSession, folder: Path, index: PayloadIndex, end: int) -> None:
    """Indexes all complete blocks before `end` that are not indexed yet."""
    missing = index.missing(first_offset(folder) or 0, end)
    for start in range(0, len(missing), BLOCKS_PER_JOB):
        some = missing[start : start + BLOCKS_PER_JOB]
        index.write(make_filters(spark, folder, some, index.block).toArrow())


def finish(run: PipelineRun) -> list[str]:
    index = PayloadIndex(index_of(run.data))
    files = index.files()
    size = sum(file.path.stat().st_size for file in files)
    end = max((file.next for file in files), default=0)
    return [f"{index.folder}: {len(files):,} files, {size:,} bytes, offsets up to {end:,}"]


PIPELINE = Pipeline("index", IndexSettings, start, finish, "DIR/index/")
