"""The index on disk: a filter for each block of the log, in Parquet.

    DIR/index/SEED/00000000000000000000-00000000000000065536.parquet     named by the offsets that it is about
    first, next, rows, grams, tokens, escapes                            a row for each block

SEED is that of the log: another log in the same place has another index.

A block is all messages whose offsets have the same multiple of 65,536 below them. It is indexed when the log has
gone past it, so its filter never changes: to write it twice does no harm, and a file that is missing costs time
only. When there are filters for many blocks on end, they become one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polycast.log.files.disk import DISK
from polycast.log.files.folder import DIGITS, log_folder, make_folder
from polycast.log.files.state import read_state
from polycast.pipelines.index.grams import FilterBuilder, PayloadFilter

BLOCK_OFFSETS = 65_536
UNKNOWN = "unknown"
BLOCKS_PER_FILE = 64
ROW_GROUP_BLOCKS = 8
SCHEMA = pa.schema(
    [
        ("first", pa.int64()),
        ("next", pa.int64()),
        ("rows", pa.int64()),
        ("grams", pa.binary()),
        ("tokens", pa.binary()),
        ("escapes", pa.bool_()),
    ]
)


def index_of(data: Path) -> Path:
    """The folder of the index that belongs to the log in a data folder."""
    state = read_state(log_folder(data))
    return data.absolute() / "index" / (state.seed if state else UNKNOWN)


class IndexFile(NamedTuple):
    first: int
    next: int
    path: Path


class PayloadIndex:
    def __init__(self, folder: Path, block: int = BLOCK_OFFSETS) -> None:
        self.folder = folder
        self.block = block

    def files(self) -> list[IndexFile]:
        """By offset."""
        found = []
        for path in self.folder.glob("*-*.parquet"):
            first, _, after = path.stem.partition("-")
            found.append(IndexFile(int(first), int(after), path))
        return sorted(found)

    def missing(self, start: int, stop: int) -> list[int]:
        """Where blocks begin that are full and not indexed, of those that have offsets from `start` on."""
        files = self.files()
        begin = start // self.block * self.block
        return [
            first
            for first in range(begin, stop - self.block + 1, self.block)
            if not any(file.first <= first and first + self.block <= file.next for file in files)
        ]

    def write(self, filters: pa.Table) -> None:
        """Of blocks that follow each other or not."""
        make_folder(self.folder, DISK)
        rows = filters.cast(SCHEMA).sort_by("first")
        groups = pc.divide(rows["first"], self.block * BLOCKS_PER_FILE)
        for group in pc.unique(groups).to_pylist():
            for run in _runs(rows.filter(pc.equal(groups, group))):
                self._write_file(run)
            self._merge_files(group * self.block * BLOCKS_PER_FILE)

    def _write_file(self, rows: pa.Table) -> None:
        first, after = rows["first"][0].as_py(), rows["next"][-1].as_py()
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, row_group_size=ROW_GROUP_BLOCKS, compression="zstd", use_dictionary=False)
        DISK.replace(self.folder / f"{first:0{DIGITS}}-{after:0{DIGITS}}.parquet", sink.getvalue())

    def _merge_files(self, begin: int) -> None:
        """The files of a whole group into one; those that were there go afterwards."""
        end = begin + self.block * BLOCKS_PER_FILE
        parts = [file for file in self.files() if begin <= file.first and file.next <= end]
        if len(parts) < 2 or sum(file.next - file.first for file in parts) < end - begin:
            return
        rows = pa.concat_tables(pq.read_table(file.path, schema=SCHEMA) for file in parts).sort_by("first")
        self._write_file(rows)
        for file in parts:
            if (file.first, file.next) != (begin, end):
                file.path.unlink()

    def skippable(self, start: int, stop: int, may_have: Callable[[PayloadFilter], bool]) -> list[tuple[int, int]]:
        """The offsets, from block to block, of those that for certain have nothing."""
        skipped: set[tuple[int, int]] = set()
        for file in self.files():
            if file.first < stop and file.next > start:
                skipped.update(_skippable(file, start, stop, may_have))
        return sorted(skipped)


def _runs(rows: pa.Table) -> Iterator[pa.Table]:
    """Cut where a block does not follow the one before it."""
    firsts, nexts = rows["first"].to_pylist(), rows["next"].to_pylist()
    begin = 0
    for place in range(1, len(firsts) + 1):
        if place == len(firsts) or firsts[place] != nexts[place - 1]:
            yield rows.slice(begin, place - begin)
            begin = place


def _skippable(
    file: IndexFile, start: int, stop: int, may_have: Callable[[PayloadFilter], bool]
) -> Iterator[tuple[int, int]]:
    """A file that is gone was folded into another, or is of no use: then there is more to read."""
    wanted = (pc.field("first") < stop) & (pc.field("next") > start)
    try:
        rows = pq.read_table(file.path, filters=wanted, schema=SCHEMA)
    except (OSError, pa.ArrowException):
        return
    for row in rows.to_pylist():
        if not may_have(PayloadFilter(row["grams"], row["tokens"], row["escapes"])):
            yield row["first"], row["next"]


def to_rows(blocks: Iterable[tuple[int, int, FilterBuilder, int]]) -> pa.RecordBatch:
    """From (first, next, what was built, rows) of each block; there must be one."""
    rows = [(first, after, rows, *built.to_filter()) for first, after, built, rows in blocks]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
