"""Work on the log or the lake inside Spark's workers, right where the files are read.

What is not wanted never leaves the worker: Spark sees results alone. The parts come by offset, and so do results,
part by part; `take` looks into the first parts first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from polycast.errors import UsageError
from polycast.log.read.catalog import LogCatalog
from polycast.log.read.query import OffsetRange, RowFilter, matching_rows, query_rows, to_ranges
from polycast.pipelines.archive.lake import HOURS, SUFFIX, offsets_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 64 * 1024 * 1024
"""Of a part, before compression: a second of work or less."""
COMPRESSION = 4
"""How much more rows of the lake are than their files, about."""

Batches = Iterator[pa.RecordBatch]
Task = TypeVar("Task")


class LakeRange(NamedTuple):
    """Rows of a file of the lake."""

    first: int
    next: int
    size: int
    path: str


Piece = OffsetRange | LakeRange
LakeFile = tuple[int, int, Path]
"""The first and the last offset in it."""


@dataclass(frozen=True)
class ReadTask:
    """What one task reads."""

    folder: Path
    wanted: RowFilter
    columns: tuple[str, ...]
    pieces: tuple[Piece, ...]

    def read(self) -> Batches:
        stretches = [piece for piece in self.pieces if isinstance(piece, OffsetRange)]
        yield from query_rows(self.folder, stretches, self.wanted, self.columns)
        for piece in self.pieces:
            if isinstance(piece, LakeRange):
                yield from _read_file(piece, self.wanted, self.columns)

    def without(self, ranges: Sequence[tuple[int, int]]) -> ReadTask:
        """The same less these offsets."""
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
    """Ranges come by offset and do not overlap. What is left of a piece begins at its own place in the file."""
    begin = piece.first
    for first, after in ranges:
        if after <= begin or first >= piece.next:
            continue
        if first > begin:
            yield piece._replace(first=begin, next=first)
        begin = after
    if begin < piece.next:
        yield piece._replace(first=begin)


# -- what there is ---------------------------------------------------------------------------------------


def log_tasks(
    folder: Path, wanted: RowFilter, columns: Sequence[str], start: int = 0, stop: int | None = None
) -> list[ReadTask]:
    survey = LogCatalog(folder)
    try:
        end = survey.next() if stop is None else stop
        stretches = to_ranges(survey.pieces(start, end), wanted, start, end)
    finally:
        survey.close()
    return _to_parts(folder.absolute(), wanted, columns, stretches)


def lake_tasks(
    folder: Path, wanted: RowFilter, columns: Sequence[str], start: int = 0, stop: int = 2**63 - 1
) -> list[ReadTask]:
    """By the names of its files: they tell their offsets."""
    pieces = [
        LakeRange(max(start, first), min(stop, last + 1), path.stat().st_size * COMPRESSION, str(path.absolute()))
        for first, last, path in lake_files(folder)
        if first < stop and last >= start
    ]
    return _to_parts(folder.absolute(), wanted, columns, pieces)


def lake_files(folder: Path) -> list[LakeFile]:
    """By offset."""
    if not folder.is_dir():
        raise UsageError(f"there is no lake in {folder}", "polycast pipeline run archive --once makes one")
    return sorted((*offsets_of(path), path) for path in folder.glob(f"{HOURS}/*{SUFFIX}"))


def _to_parts(folder: Path, wanted: RowFilter, columns: Sequence[str], pieces: Iterable[Piece]) -> list[ReadTask]:
    parts: list[list[Piece]] = [[]]
    size = 0
    for piece in pieces:
        if parts[-1] and size + piece.size > PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(piece)
        size += piece.size
    return [ReadTask(folder, wanted, tuple(columns), tuple(part)) for part in parts if part]


# -- what is done with it --------------------------------------------------------------------------------


def run_tasks(
    spark: SparkSession, parts: Sequence[Task], work: Callable[[Task], Batches], schema: str
) -> DataFrame:
    """What the work makes of each part, in the order of the parts."""

    def run(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                yield from work(parts[number])

    if not parts:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, schema)
