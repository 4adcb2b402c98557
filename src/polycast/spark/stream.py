"""The log as a stream."""

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

from polycast.spark.error_text import one_line_errors
from polycast.spark.log_view import LogView, open_view
from polycast.spark.options import LATEST, SourceOptions
from polycast.spark.partition_reader import read_partition
from polycast.spark.partitions import Range, check_range, find_start, to_partitions, to_wanted

Offset = dict[str, int]


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = columns
        self._view: LogView | None = None
        self._end: int | None = None
        """Where it ends, when it is to take only what was there."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_view": None}

    # -- where it has come to ----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 -- all these are Spark's names
        with one_line_errors():
            start = find_start(self._open(), self.options, LATEST)
            return {"offset": check_range(self._open(), Range(start, start), False).start}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        with one_line_errors():
            begin, end = start["offset"], self._end_now()
            if begin > end:
                check_range(self._open(), Range(begin, begin), False)
            if not isinstance(limit, ReadAllAvailable) and end > begin:
                end = self._limited(begin, end, limit)
            return {"offset": max(begin, end)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        with one_line_errors():
            return {"offset": self._open().next()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with one_line_errors():
            self._end = self._open().next()

    def _end_now(self) -> int:
        return self._open().next() if self._end is None else self._end

    def _limited(self, begin: int, end: int, limit: ReadLimit) -> int:
        """Both limits count where both are given; Spark knows of one. Offsets that nobody has count not."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_offsets
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes
        left = sys.maxsize if rows is None else rows
        room = sys.maxsize if size is None else size
        for number, piece in enumerate(self._open().pieces(begin, end)):
            first, after = max(begin, piece.first), min(end, piece.next)
            share = piece.size * (after - first) // max(1, piece.next - piece.first)
            if number and share > room:  # but at least one, so that it goes on
                return first
            if after - first >= left:
                return first + left
            left, room = left - (after - first), room - share
        return end

    # -- what it reads -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        with one_line_errors():
            view = self._open()
            asked = Range(start["offset"], end["offset"])
            there = check_range(view, asked, self.options.fail_on_data_loss)
            return to_partitions(view, to_wanted(self.options), there, self.options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, to_wanted(self.options), self.columns, partition)

    def commit(self, end: Offset) -> None:
        """Nothing is held anywhere."""

    def stop(self) -> None:
        if self._view:
            self._view.close()
        self._view = None

    def _open(self) -> LogView:
        if self._view is None:
            self._view = open_view(self.options)
        return self._view
