"""Writes rows of the log to staged files of the lake, in Arrow, inside Spark's workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.format import SCHEMA
from polycast.log.upkeep.sealing import to_writer
from polycast.pipelines.runtime.lake import STAGED, STAGING, StagedFile

if TYPE_CHECKING:
    from polycast.spark.options import SourceOptions
    from polycast.spark.partitions import LogPartition

DESCRIPTION = "staged string, hour string, first long, last long, rows long, size long"
"""The schema of the workers' results, one StagedFile per row."""
FIELDS = pa.schema(
    [("staged", pa.string()), ("hour", pa.string())]
    + [(name, pa.int64()) for name in ("first", "last", "rows", "size")]
)
ROW_GROUP_ROWS = 256 * 1024
ROW_GROUP_BYTES = 32 * 1024 * 1024
OPEN_HOURS = 8
"""Maximum number of open files. Times rise with offsets unless a clock was set back."""
HOUR_MICROS = 3_600_000_000


def stage_partition(
    options: SourceOptions, partition: LogPartition, lake: Path, subfolder: str, target_bytes: int
) -> list[StagedFile]:
    """Runs in a worker."""
    from polycast.spark.partition_reader import read_partition
    from polycast.spark.partitions import to_wanted

    files = StagingWriter(lake, f"{STAGING}/{subfolder}", target_bytes)
    for rows in read_partition(options, to_wanted(options), SCHEMA.names, partition):
        files.add(rows)
    return files.close()


def to_batch(files: list[StagedFile]) -> pa.RecordBatch:
    columns = [list(values) for values in zip(*files, strict=True)] or [[] for _ in FIELDS]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FIELDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FIELDS)


class StagingWriter:
    """Takes rows in order of offset and writes each to the file of its hour."""

    def __init__(self, lake: Path, subfolder: str, target_bytes: int) -> None:
        self._lake = lake
        self._below = subfolder
        self._target_bytes = target_bytes
        self._open: dict[int, StagedFileWriter] = {}
        self._done: list[StagedFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for hour, rows in split_by_hour(batch):
            if hour not in self._open:
                self._open_file(hour)
            self._open[hour].add(rows)
            if self._open[hour].size >= self._target_bytes:
                self._close_file(hour)

    def close(self) -> list[StagedFile]:
        for hour in list(self._open):
            self._close_file(hour)
        return self._done

    def _open_file(self, hour: int) -> None:
        if len(self._open) >= OPEN_HOURS:
            self._close_file(min(self._open))
        self._open[hour] = StagedFileWriter(self._lake, f"{self._below}/{uuid4().hex}{STAGED}", hour_name(hour))

    def _close_file(self, hour: int) -> None:
        self._done.append(self._open.pop(hour).close())


def split_by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Hours since the epoch, in UTC."""
    if not batch.num_rows:
        return
    hours = pc.divide(batch["time"].cast(pa.int64()), HOUR_MICROS)
    bounds = pc.min_max(hours)
    if bounds["min"] == bounds["max"]:
        yield bounds["min"].as_py(), batch
        return
    for hour in pc.unique(hours):
        yield hour.as_py(), batch.filter(pc.equal(hours, hour))


def hour_name(hour: int) -> str:
    return datetime.fromtimestamp(hour * 3600, UTC).strftime("date=%Y-%m-%d/hour=%H")


class StagedFileWriter:
    def __init__(self, lake: Path, staged: str, hour: str) -> None:
        self._staged = staged
        self._hour = hour
        path = lake / staged
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb")
        self._writer = to_writer(self._file)  # `date` and `hour` are only in the path
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_rows = self._buffered_bytes = self._rows = 0
        self._first = self._last = -1

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def add(self, batch: pa.RecordBatch) -> None:
        if self._first < 0:
            self._first = batch["offset"][0].as_py()
        self._last = batch["offset"][-1].as_py()
        self._buffered.append(batch)
        self._buffered_rows += batch.num_rows
        self._buffered_bytes += batch.nbytes
        if self._buffered_rows >= ROW_GROUP_ROWS or self._buffered_bytes >= ROW_GROUP_BYTES:
            self._write()

    def close(self) -> StagedFile:
        """Fsyncs the file."""
        if self._buffered:
            self._write()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self.size
        self._file.close()
        return StagedFile(self._staged, self._hour, self._first, self._last, self._rows, size)

    def _write(self) -> None:
        rows = pa.Table.from_batches([batch.select(SCHEMA.names) for batch in self._buffered])
        self._writer.write_table(rows.cast(SCHEMA).combine_chunks(), row_group_size=max(1, rows.num_rows))
        self._rows += rows.num_rows
        self._buffered, self._buffered_rows, self._buffered_bytes = [], 0, 0
