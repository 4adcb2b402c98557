"""The index on disk: a filter per block of the log, in Parquet.

    DIR/index/SEED/00000000000000000000-00000000000000065536.parquet     named by its first and next offset
    first, next, rows, grams, tokens, escapes                            one row per block

SEED identifies the log: another log in the same folder has another index.

A block is a range of 65,536 offsets, aligned. It is indexed when it is complete, so its filter never changes:
writing it twice is harmless, and a missing file only makes searches slower. Filters of many adjacent blocks are
merged into one file.
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
    [(name, pa.int64()) for name in ("first", "next", "rows")]
    + [("grams", pa.binary()), ("tokens", pa.binary()), ("escapes", pa.bool_())]
)


def index_of(data: Path) -> Path:
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
        """Sorted by offset."""
        found = []
        for path in self.folder.glob("*-*.parquet"):
            first, _, after = path.stem.partition("-")
            found.append(IndexFile(int(first), int(after), path))
        return sorted(found)

    def missing(self, start: int, stop: int) -> list[int]:
        """First offsets of complete blocks between `start` and `stop` that are not indexed."""
        files = self.files()
        first_block = start // self.block * self.block
        return [
            first
            for first in range(first_block, stop - self.block + 1, self.block)
            if not any(file.first <= first and first + self.block <= file.next for file in files)
        ]

    def write(self, filters: pa.Table) -> None:
        """The blocks need not be adjacent."""
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

    def _merge_files(self, first_block: int) -> None:
        """Merges the files of a complete group into one, then removes them."""
        end = first_block + self.block * BLOCKS_PER_FILE
        merged = [file for file in self.files() if first_block <= file.first and file.next <= end]
        if len(merged) < 2 or sum(file.next - file.first for file in merged) < end - first_block:
            return
        rows = pa.concat_tables(pq.read_table(file.path, schema=SCHEMA) for file in merged).sort_by("first")
        self._write_file(rows)
        for file in merged:
            if (file.first, file.next) != (first_block, end):
                file.path.unlink()

    def skippable(self, start: int, stop: int, may_have: Callable[[PayloadFilter], bool]) -> list[tuple[int, int]]:
        """Offset ranges of blocks that cannot contain a match."""
        skipped: set[tuple[int, int]] = set()
        for file in self.files():
            if file.first < stop and file.next > start:
                skipped.update(_skippable(file, start, stop, may_have))
        return sorted(skipped)


def _runs(rows: pa.Table) -> Iterator[pa.Table]:
    firsts, nexts = rows["first"].to_pylist(), rows["next"].to_pylist()
    start = 0
    for stop in range(1, len(firsts) + 1):
        if stop == len(firsts) or firsts[stop] != nexts[stop - 1]:
            yield rows.slice(start, stop - start)
            start = stop


def _skippable(
    file: IndexFile, start: int, stop: int, may_have: Callable[[PayloadFilter], bool]
) -> Iterator[tuple[int, int]]:
    """A file that was merged meanwhile or is damaged is skipped; its blocks are read."""
    wanted = (pc.field("first") < stop) & (pc.field("next") > start)
    try:
        rows = pq.read_table(file.path, filters=wanted, schema=SCHEMA)
    except (OSError, pa.ArrowException):
        return
    for row in rows.to_pylist():
        if not may_have(PayloadFilter(row["grams"], row["tokens"], row["escapes"])):
            yield row["first"], row["next"]


def to_rows(blocks: Iterable[tuple[int, int, FilterBuilder, int]]) -> pa.RecordBatch:
    """From (first, next, builder, rows) of at least one block."""
    rows = [(first, after, rows, *built.to_filter()) for first, after, built, rows in blocks]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
