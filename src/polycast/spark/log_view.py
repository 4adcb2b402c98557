"""Read access to a log, in a folder or through a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from polycast.errors import UsageError
from polycast.log.files.format import Gap
from polycast.log.files.state import read_state
from polycast.log.read.catalog import LogCatalog, SegmentPart
from polycast.log.read.query import OffsetRange, RowFilter, query_rows, to_ranges
from polycast.log.read.seek import find_sequences, find_time
from polycast.log.times import MICROS
from polycast.model import Pattern
from polycast.spark.options import SourceOptions

SCAN_BYTES = 4 * 1024 * 1024
"""How much is read to find out whether new messages match. A batch reads larger ranges anyway."""
LOG_FILES = ("state.json", "[0-9]*.arrows", "[0-9]*.parquet")
"""Every log folder has at least one of these."""


class LogView(Protocol):
    def first(self) -> int:
        """The first offset of the log."""

    def next(self) -> int:
        """The offset after the last message."""

    def reach(self, offset: int) -> int:
        """As `next`, but waits until a node of a cluster has this offset."""

    def end(self, patterns: Sequence[Pattern], start: int) -> tuple[int, bool]:
        """The offset after the last message, and whether messages from `start` on may match. Cheap."""

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

    def reach(self, offset: int) -> int:
        return self.next()

    def end(self, patterns: Sequence[Pattern], start: int) -> tuple[int, bool]:
        after = self.next()
        return after, after > start and self._may_match(RowFilter(tuple(patterns)), start, after)

    def _may_match(self, wanted: RowFilter, start: int, stop: int) -> bool:
        """Reads topics of the hot segment; a sealed one lists them. A gap may have had matching messages."""
        ranges = to_ranges(self.parts(start, stop), wanted, start, stop)
        if sum(each.size for each in ranges) > SCAN_BYTES:
            return True
        gaps: list[Gap] = []
        return any(True for _ in query_rows(self.folder, ranges, wanted, ["offset"], gaps.append)) or bool(gaps)

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


def open_view(options: SourceOptions, number: int = 0) -> LogView:
    """`number`: of the partition; tasks spread over the brokers of the option `at`."""
    if options.at:
        from polycast.spark.broker_view import BrokerView

        return BrokerView(options.at, options.retry_seconds, number)
    return FolderView(find_log(options.path))


def find_log(path: str) -> Path:
    """The log folder: the path itself, or `log` inside it."""
    folder = Path(path)
    for candidate in (folder, folder / "log"):
        if any(any(candidate.glob(mark)) for mark in LOG_FILES):
            read_state(candidate)  # raises LogVersionError
            return candidate
    problem = "is not a log" if folder.exists() else "does not exist"
    raise UsageError(f"{folder} {problem}", "polycast serve --data DIR writes its log to DIR/log")
