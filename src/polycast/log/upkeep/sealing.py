"""Sealing: from a hot segment to a Parquet file.

The Parquet file is written under a temporary name, fsynced, and read back: every row group must have the digests
of its rows. Only then it gets its name, and the hot file is removed when that name is durable. A stop in between
leaves the hot file, or both; then the sealed one counts.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polycast.errors import LogDamageError
from polycast.log.files.disk import DISK, TEMPORARY, Disk
from polycast.log.files.folder import SEALED
from polycast.log.files.format import SCHEMA, VERSION, Gap, GroupHeader
from polycast.log.files.hot import Group, HotReader
from polycast.log.files.sealed import RowGroup, SealedReader, SegmentMetadata, content_of, digest_of, to_key_values

ROW_GROUP_ROWS = 64 * 1024
ROW_GROUP_BYTES = 16 * 1024 * 1024
LISTED_TOPICS = 64
"""A row group with up to this many topics lists them, so that queries for other topics skip it."""
SLICE_SECONDS = 0.01
COUNTED = ["offset", "sequence", "time"]
REPEATED = ["topic", "dialect", "format", "source"]


class SealingStopped(Exception):  # noqa: N818 -- not an error
    pass


class Throttle:
    """Limits the work to a share of one core, and stops it on request."""

    def __init__(self, share: float, pause: Callable[[float], object], stopped: Callable[[], bool]) -> None:
        self._rest = 1 / min(max(share, 0.01), 1.0) - 1
        self._pause = pause
        self._stopped = stopped
        self._began = time.thread_time()

    def step(self) -> None:
        """Call it often: it pauses when enough work was done."""
        if self._stopped():
            raise SealingStopped
        worked = time.thread_time() - self._began
        if self._rest and worked >= SLICE_SECONDS:
            self._pause(worked * self._rest)
            self._began = time.thread_time()


def seal(
    path: Path,
    share: float = 1.0,
    pause: Callable[[float], object] = time.sleep,
    stopped: Callable[[], bool] = lambda: False,
    disk: Disk = DISK,
) -> Path | None:
    """The sealed segment; None if it has no messages, or if sealing was stopped.

    Raises LogDamageError or OSError, and leaves the hot segment as it was.
    """
    target = path.with_suffix(SEALED)
    temporary = target.with_name(target.name + TEMPORARY)
    throttle = Throttle(share, pause, stopped)
    try:
        if not _write(path, temporary, throttle, disk):
            return None
        check_file(temporary, throttle.step)
        disk.rename(temporary, target)
    except SealingStopped:
        return None
    finally:
        temporary.unlink(missing_ok=True)
    path.unlink()
    return target


def _write(path: Path, temporary: Path, throttle: Throttle, disk: Disk) -> bool:
    """False if there are no messages."""
    reader = HotReader(path)
    sink = SegmentSink(temporary, disk)
    try:
        found = _Found()
        with to_writer(pa.PythonFile(sink, mode="w"), page_checksums=True) as writer:
            for table in _row_groups(reader, found, throttle):
                found.row_groups.append(_describe(table))
                writer.write_table(table)
                throttle.step()
            if not found.headers:
                return False
            _check_end(reader, found.headers[-1].next)
            writer.add_key_value_metadata(to_key_values(found.to_metadata(reader.layout.seed)))
        sink.sync()
    finally:
        sink.release()
        reader.close()
    return True


def _check_end(reader: HotReader, after: int) -> None:
    end = reader.position
    if reader.find_group(after):
        raise LogDamageError(f"{reader.path}, byte {end:,}: zeros, and groups follow behind them")


def _row_groups(reader: HotReader, found: _Found, throttle: Throttle) -> Iterator[pa.Table]:
    parts: list[pa.RecordBatch] = []
    rows = size = 0
    for group in reader.groups():
        throttle.step()
        found.headers.append(group.header)
        for part in _cut(group):
            parts.append(part)
            rows += part.num_rows
            size += part.nbytes  # as it is decoded: in the hot segment, topics are compressed
            if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                yield _join(parts)
                parts, rows, size = [], 0, 0
    if parts:
        yield _join(parts)


def _join(parts: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(parts).replace_schema_metadata().combine_chunks()


def _cut(group: Group) -> Iterator[pa.RecordBatch]:
    count = group.header.count
    rows = min(ROW_GROUP_ROWS, max(1, count * ROW_GROUP_BYTES // group.batch.nbytes))
    for start in range(0, count, rows):
        yield group.batch.slice(start, rows) if rows < count else group.batch


def _describe(table: pa.Table) -> RowGroup:
    offsets, times = table["offset"], table["time"]
    sequences = pc.min_max(table["sequence"]).as_py()
    topics = sorted(pc.unique(table["topic"]).to_pylist())
    few = len(topics) <= LISTED_TOPICS
    return RowGroup(
        first=offsets[0].as_py(),
        next=offsets[-1].as_py() + 1,
        count=table.num_rows,
        first_time=times[0].value,
        last_time=times[-1].value,
        columns=[digest_of(column) for column in table.columns],
        sequences=(sequences["min"], sequences["max"]),
        topics=topics if few else [topics[0], topics[-1]],
        all_topics=few,
    )


class _Found:
    """Collected while a segment is read."""

    def __init__(self) -> None:
        self.headers: list[GroupHeader] = []
        self.row_groups: list[RowGroup] = []

    def to_metadata(self, seed: int) -> SegmentMetadata:
        headers, groups = self.headers, self.row_groups
        gaps: list[Gap] = [header.gap for header in headers if header.gap]
        return SegmentMetadata(
            version=VERSION,
            seed=f"{seed:016x}",
            first=headers[0].first,
            next=headers[-1].next,
            count=sum(group.count for group in groups),
            previous=headers[0].previous,
            checksum=headers[-1].checksum,
            gaps=gaps,
            batches=[batch for header in headers for batch in header.batches],
            first_time=groups[0].first_time,
            last_time=groups[-1].last_time,
            content=content_of(groups),
            row_groups=groups,
            position=headers[-1].position,
        )


def to_writer(file: object, page_checksums: bool = False) -> pq.ParquetWriter:
    """For rows of the log, without statistics of payloads. DuckDB, Polars and Spark since 3.3 read deltas."""
    return pq.ParquetWriter(
        file,
        SCHEMA,
        compression="zstd",
        use_dictionary=REPEATED,
        column_encoding=dict.fromkeys(COUNTED, "DELTA_BINARY_PACKED") | {"payload": "PLAIN"},
        write_statistics=[*COUNTED, *REPEATED],
        write_page_checksum=page_checksums,
        store_schema=False,
    )


class SegmentSink:
    """A file for pyarrow that writes through `Disk`."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._disk.write(self._fd, data, self._size)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        """pyarrow calls this before the file is durable."""

    def sync(self) -> None:
        self._disk.sync(self._fd)
        os.posix_fadvise(
            self._fd, 0, 0, os.POSIX_FADV_DONTNEED
        )  # read back from the disk, not from the page cache

    def release(self) -> None:
        os.close(self._fd)


def check_file(temporary: Path, step: Callable[[], None] = lambda: None) -> None:
    """Raises OSError, not LogDamageError: the rows that were written are intact."""
    try:
        with SealedReader(temporary) as written:
            for number in range(len(written.metadata.row_groups)):
                written.read(number)
                step()
    except LogDamageError as error:
        raise OSError(errno.EIO, f"the file differs from the rows that were written: {error}") from error
