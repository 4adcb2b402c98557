"""Read access to a log, in a folder or through a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from polycast.errors import UsageError
from polycast.log.files.format import Gap
from polycast.log.read.catalog import LogCatalog, SegmentPart
from polycast.log.read.query import OffsetRange, RowFilter, query_rows
from polycast.log.read.seek import find_sequences, find_time
from polycast.log.times import MICROS
from polycast.spark.options import SourceOptions

LOG_FILES = ("state.json", "[0-9]*.arrows", "[0-9]*.parquet")
"""Every log folder has at least one of these."""


class LogView(Protocol):
    def first(self) -> int:
        """The first offset of the log."""

    def next(self) -> int:
        """The offset after the last message."""

    def at_time(self, micros: int) -> int:
        """The first offset at or after a time."""

    def at_sequences(self, sequences: Mapping[str, int]) -> int:
        """An offset at or before the given sequence of each topic."""

    def parts(self, start: int, stop: int) -> list[SegmentPart]: ...

    def query_rows(
        self,
        ranges: Sequence[OffsetRange],
        wanted: RowFilter,
        columns: Sequence[str],
        on_skipped: Callable[[Gap], None],
    ) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


class FolderView:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._catalog = LogCatalog(folder)
        self.first = self._catalog.first
        self.next = self._catalog.next
        self.parts = self._catalog.parts
        self.close = self._catalog.close

    def at_time(self, micros: int) -> int:
        return find_time(self.folder, micros / MICROS)

    def at_sequences(self, sequences: Mapping[str, int]) -> int:
        return find_sequences(self.folder, sequences)

    def query_rows(
        self,
        ranges: Sequence[OffsetRange],
        wanted: RowFilter,
        columns: Sequence[str],
        on_skipped: Callable[[Gap], None],
    ) -> Iterator[pa.RecordBatch]:
        return query_rows(self.folder, ranges, wanted, columns, on_skipped)


def open_view(options: SourceOptions) -> LogView:
    if options.at:
        from polycast.spark.broker_view import BrokerView

        return BrokerView(options.at)
    return FolderView(find_log(options.path))


def find_log(path: str) -> Path:
    """The log folder: the path itself, or `log` inside it."""
    folder = Path(path)
    for candidate in (folder, folder / "log"):
        if any(any(candidate.glob(mark)) for mark in LOG_FILES):
            return candidate
    problem = "is not a log" if folder.exists() else "does not exist"
    raise UsageError(f"{folder} {problem}", "polycast serve --data DIR writes its log to DIR/log")
