"""Reads the log as a stream of micro-batches.

New messages of other topics do not start a batch: the broker's own events, which every connection causes, would
keep an idle stream busy. Once in ADVANCE_SECONDS the stream advances past them with a batch that reads nothing,
because retention moves the first offset of the log, and the stream must not fall behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from polycast.log.read.query import RowFilter
from polycast.spark.error_text import one_line_errors
from polycast.spark.log_view import LogView, open_view
from polycast.spark.options import LATEST, SourceOptions
from polycast.spark.pace import Pace
from polycast.spark.partition_reader import read_partition
from polycast.spark.partitions import Range, check_range, find_start, to_partitions, to_wanted

Offset = dict[str, int]

ADVANCE_SECONDS = 60.0


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = columns
        self._view: LogView | None = None
        self._end: int | None = None
        """With the trigger AvailableNow: the offset at which the stream ends."""
        self._seen: int | None = None
        """The last known end of the log."""
        self._searched = Range(0, 0)
        """No message from here to `_seen` matches."""
        self._pace = Pace()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_view": None, "_pace": None}

    # -- offsets -----------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 -- all these are Spark's names
        with one_line_errors():
            start = find_start(self._open(), self.options, LATEST)
            return {"offset": check_range(self._open(), Range(start, start), False).first}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        with one_line_errors():
            first = start["offset"]
            end = self._end_for(first) if self._end is None else self._end
            if first > end:
                check_range(self._open(), Range(first, first), False)
            if not isinstance(limit, ReadAllAvailable) and end > first:
                end = self._limited(first, end, limit)
            return {"offset": max(first, end)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        with one_line_errors():
            return {"offset": self._open().next() if self._seen is None else self._seen}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with one_line_errors():
            self._end = self._open().next()

    def _end_for(self, first: int) -> int:
        """The end of a batch that starts at `first`; `first` itself if no batch is needed."""
        self._pace.wait()
        searched = self._searched if self._searched.first <= first <= self._searched.next else Range(first, first)
        self._seen, matching = self._open().end(self._wanted.patterns or (), searched.next)
        if not matching:
            self._searched = Range(searched.first, max(searched.next, self._seen))
        if matching or (self._seen > first and self._pace.idle_seconds >= ADVANCE_SECONDS):
            self._pace.note_messages()
            return self._seen
        return min(first, self._seen)

    def _limited(self, start: int, end: int, limit: ReadLimit) -> int:
        """Applies both limits if both are set; Spark passes only one. Unused offsets do not count."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_offsets
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes
        rows_left = sys.maxsize if max_rows is None else max_rows
        bytes_left = sys.maxsize if max_bytes is None else max_bytes
        for number, piece in enumerate(self._open().parts(start, end)):
            first, after = max(start, piece.first), min(end, piece.next)
            size = piece.size * (after - first) // max(1, piece.next - piece.first)
            if number and size > bytes_left:  # a batch has at least one piece, so that the stream advances
                return first
            if after - first >= rows_left:
                return first + rows_left
            rows_left, bytes_left = rows_left - (after - first), bytes_left - size
        return end

    # -- rows --------------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end or (self._searched.first <= start["offset"] and end["offset"] <= self._searched.next):
            return []
        with one_line_errors():
            view = self._open()
            requested = Range(start["offset"], end["offset"])
            available = check_range(view, requested, self.options.fail_on_data_loss)
            return to_partitions(view, self._wanted, available, self.options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, self._wanted, self.columns, partition)

    @property
    def _wanted(self) -> RowFilter:
        return to_wanted(self.options)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the reader holds no state at the broker."""

    def stop(self) -> None:
        if self._view:
            self._view.close()
        self._view = None

    def _open(self) -> LogView:
        if self._view is None:
            self._view = open_view(self.options)
        return self._view
