"""Processes the log or the lake inside Spark's workers, where the files are read.

Rows that a query drops never leave the worker; Spark sees only results. Tasks are in order of offset, and so are
their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from polycast.errors import UsageError
from polycast.log.read.catalog import LogCatalog
from polycast.log.read.query import OffsetRange, RowFilter, matching_rows, query_rows, to_ranges
from polycast.pipelines.runtime.lake import HOURS, SUFFIX, offsets_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES = 64 * 1024 * 1024
"""Uncompressed bytes per task: a second of work or less."""
COMPRESSION = 4
"""Estimated compression ratio of the lake's files."""

Batches = Iterator[pa.RecordBatch]
Task = TypeVar("Task")


class LakeRange(NamedTuple):
    """Offsets within one file of the lake."""

    first: int
    next: int
    size: int
    path: str


Piece = OffsetRange | LakeRange
LakeFile = tuple[int, int, Path]
"""First offset, last offset, path."""


@dataclass(frozen=True)
class WorkerTask:
    folder: Path
    wanted: RowFilter
    columns: tuple[str, ...]
    pieces: tuple[Piece, ...]

    def read(self) -> Batches:
        ranges = [piece for piece in self.pieces if isinstance(piece, OffsetRange)]
        yield from query_rows(self.folder, ranges, self.wanted, self.columns)
        for piece in self.pieces:
            if isinstance(piece, LakeRange):
                yield from _read_file(piece, self.wanted, self.columns)

    def without(self, ranges: Sequence[tuple[int, int]]) -> WorkerTask:
        """The same task without these offsets."""
        pieces = tuple(left for piece in self.pieces for left in _without(piece, ranges))
        return replace(self, pieces=pieces)


def _read_file(piece: LakeRange, wanted: RowFilter, columns: Sequence[str]) -> Batches:
    between = (ds.field("offset") >= piece.first) & (ds.field("offset") < piece.next)
    needed = list(dict.fromkeys([*columns, *wanted.columns]))
    for batch in ds.dataset(piece.path, format="parquet").to_batches(needed, between, use_threads=False):
        rows = matching_rows(batch, wanted)
        if rows.num_rows:
            yield rows.select(columns)


def _without(piece: Piece, ranges: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """Ranges are sorted by offset and do not overlap."""
    rest = piece.first
    for first, after in ranges:
        if after <= rest or first >= piece.next:
            continue
        if first > rest:
            yield piece._replace(first=rest, next=first)
        rest = after
    if rest < piece.next:
        yield piece._replace(first=rest)


# -- planning --------------------------------------------------------------------------------------------


def log_tasks(
    folder: Path, wanted: RowFilter, columns: Sequence[str], start: int = 0, stop: int | None = None
) -> list[WorkerTask]:
    with closing(LogCatalog(folder)) as catalog:
        end = catalog.next() if stop is None else stop
        ranges = to_ranges(catalog.parts(start, end), wanted, start, end)
    return _to_tasks(folder.absolute(), wanted, columns, ranges)


def lake_tasks(
    folder: Path, wanted: RowFilter, columns: Sequence[str], start: int = 0, stop: int = 2**63 - 1
) -> list[WorkerTask]:
    """The offsets of each file are part of its name."""
    pieces = [
        LakeRange(max(start, first), min(stop, last + 1), path.stat().st_size * COMPRESSION, str(path.absolute()))
        for first, last, path in lake_files(folder)
        if first < stop and last >= start
    ]
    return _to_tasks(folder.absolute(), wanted, columns, pieces)


def lake_files(folder: Path) -> list[LakeFile]:
    """Sorted by offset."""
    if not folder.is_dir():
        raise UsageError(f"there is no lake in {folder}", "polycast pipeline run archive --once creates one")
    return sorted((*offsets_of(path), path) for path in folder.glob(f"{HOURS}/*{SUFFIX}"))


def _to_tasks(
    folder: Path, wanted: RowFilter, columns: Sequence[str], pieces: Iterable[Piece]
) -> list[WorkerTask]:
    groups: list[list[Piece]] = [[]]
    size = 0
    for piece in pieces:
        if groups[-1] and size + piece.size > TASK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.size
    return [WorkerTask(folder, wanted, tuple(columns), tuple(group)) for group in groups if group]


# -- running ---------------------------------------------------------------------------------------------


def run_tasks(
    spark: SparkSession, tasks: Sequence[Task], work: Callable[[Task], Batches], schema: str
) -> DataFrame:
    """Applies `work` to each task in the workers. The results are in the order of the tasks."""

    def run(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                yield from work(tasks[number])

    if not tasks:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, schema)
