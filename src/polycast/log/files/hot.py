"""A hot segment: groups are appended at its end, and read from any position.

An append is atomic: the body of a group is written first and its prefix last, into allocated space that reads as
zeros. A failed append is truncated, so that only zeros follow the last group.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from polycast.errors import LogDamageError, LogVersionError
from polycast.log.files.disk import DISK, NO_FILE, TEMPORARY, Disk
from polycast.log.files.format import (
    CONTINUES,
    ENDS,
    ENVELOPE_BYTES,
    OPENING,
    PREFIX_BYTES,
    SCHEMA,
    GroupHeader,
    Layout,
    header_at,
    read_batch,
    read_columns,
    read_header,
    read_layout,
    size_at,
)
from polycast.log.files.read_memory import ReadMemory
from polycast.model import Buffer

ALLOCATE_BYTES, LARGEST_ALLOCATE_BYTES = 4 * 1024 * 1024, 16 * 1024 * 1024
ALLOCATE_GROUPS = 8
"""Space is allocated for so many more groups of the size of the last one, within these bounds."""
CHUNK_BYTES, LARGEST_CHUNK_BYTES = 1024 * 1024, 4 * 1024 * 1024
"""Read at a time: the size of the largest group so far, within these bounds."""
PAGE_BYTES = 4096
CACHED_BYTES = 16 * 1024 * 1024
"""The part of a segment that stays in the page cache. Slower readers read from the disk. Reusing the same pages
makes
writes many times faster, most of all on a virtual machine."""
HEADS_BYTES = 64 * 1024
"""Read at a time for the headers of groups."""
MAPPED_BYTES = 16 * 1024 * 1024
"""A larger group is mapped instead of copied: concurrent readers share it."""
ALIGNED_BYTES = 8
PREFIX = re.compile(rb"(?=\xff\xff\xff\xff...\0)", re.DOTALL)
"""The prefix of a group with less than 16 MiB of metadata."""


class HotSegment:
    """The segment being written. `end` is the position of the next group."""

    def __init__(self, path: Path, fd: int, layout: Layout, end: int, disk: Disk) -> None:
        self.path = path
        self.layout = layout
        self.end = end
        self._fd = fd
        self._direct = disk.open_direct(path)
        self._disk = disk
        self._allocated = end
        self._torn = False
        """Whether the file may have bytes of a failed append."""
        self._dropped = 0

    @classmethod
    def create(cls, path: Path, layout: Layout, disk: Disk = DISK) -> HotSegment:
        """The file gets its name when its head is durable."""
        if path.exists():
            raise FileExistsError(errno.EEXIST, "the segment exists already", str(path))
        temporary = path.with_name(path.name + TEMPORARY)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            disk.write(fd, layout.head, 0)
            disk.sync(fd)
            disk.rename(temporary, path)
        except OSError:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise
        return cls(path, fd, layout, len(layout.head), disk)

    def append(self, pieces: Sequence[Buffer]) -> None:
        """Appends a group. A failed append leaves the segment unchanged."""
        size = sum(map(len, pieces))
        end = self.end + size
        if self._torn:
            self.truncate()
        try:
            self._torn = True
            self._make_room(end + PREFIX_BYTES, ALLOCATE_GROUPS * size)
            self._disk.append(self._fd, pieces, self.end, PREFIX_BYTES, self._direct)
        except OSError:
            with contextlib.suppress(OSError):  # tried again before the next append
                self.truncate()
            raise
        self.end = end
        self._torn = False

    def sync(self) -> None:
        self._disk.sync(self._fd)
        behind = self.end - CACHED_BYTES - self._dropped
        if behind >= ALLOCATE_BYTES:
            self._disk.drop_cache(self._fd, self._dropped, behind)
            self._dropped += behind

    def truncate(self) -> None:
        self._disk.truncate(self._fd, self.end)
        self._allocated = self.end
        self._torn = False

    def close(self) -> None:
        """Releases allocated space, except for the zeros that mark the end."""
        size = -(-(self.end + PREFIX_BYTES) // PAGE_BYTES) * PAGE_BYTES
        try:
            self._disk.truncate(self._fd, size)
            self._disk.sync(self._fd)
        finally:
            os.close(self._fd)
            if self._direct != NO_FILE:
                os.close(self._direct)

    def _make_room(self, end: int, more: int) -> None:
        if end <= self._allocated:
            return
        try:
            self._allocate(end + min(max(more, ALLOCATE_BYTES), LARGEST_ALLOCATE_BYTES))
        except OSError:
            self._allocate(end)  # the disk is nearly full

    def _allocate(self, end: int) -> None:
        self._disk.allocate(self._fd, self._allocated, end - self._allocated)
        self._allocated = end


class Group(NamedTuple):
    """A group with a valid checksum."""

    position: int
    header: GroupHeader
    batch: pa.RecordBatch


class GroupPosition(NamedTuple):
    """The byte of a hot segment at which the group with this first offset begins."""

    segment: int
    offset: int
    byte: int


class HotReader:
    """Reads complete groups while more are appended. Raises LogDamageError at the position of damage."""

    def __init__(self, path: Path, layout: Layout | None = None, memory: ReadMemory | None = None) -> None:
        """`layout` replaces a damaged head of the file. With `memory`, a group is valid until the next one."""
        self.path = path
        self._memory = memory
        self.head_damaged = layout is not None
        self._chunk = CHUNK_BYTES
        self._fd = os.open(path, os.O_RDONLY)
        try:
            self.layout = layout or self._read_layout()
        except LogDamageError as error:
            os.close(self._fd)
            if isinstance(error, LogVersionError):
                raise LogVersionError(path, error.version, error.known) from error
            raise LogDamageError(f"{path}: {error}") from error
        self.position = len(self.layout.head)

    def _read_layout(self) -> Layout:
        layout = read_layout(self._read(CHUNK_BYTES, 0))
        if not layout.schema.equals(SCHEMA):
            raise LogDamageError("its schema is not the schema of a log")
        return layout

    def close(self) -> None:
        os.close(self._fd)

    def groups(self, skip_to: int = 0, columns: Collection[str] = ()) -> Iterator[Group]:
        """From `position` to the current end; advances `position`.

        Groups entirely before the offset `skip_to` are verified and skipped. `columns`: only these.
        """
        data, at = memoryview(b""), 0
        while True:
            if not self._whole(data, at):
                data, at = self._load(), 0
                if not self._whole(data, at):
                    return
            try:
                header = read_header(data, at, self.layout.seed)
            except LogDamageError as error:
                raise self._damage(error) from error
            position = self.position
            self.position += header.size
            if header.next > skip_to:
                yield Group(position, header, self._to_batch(data, at, header, columns))
            at += header.size

    def _to_batch(
        self, data: memoryview, at: int, header: GroupHeader, columns: Collection[str]
    ) -> pa.RecordBatch:
        if columns:
            return read_columns(data, at, header, self.layout, columns)
        return read_batch(data, at, header, self.layout)

    def headers(self) -> Iterator[tuple[int, GroupHeader]]:
        """The headers of the groups from `position` on, with their positions; advances `position`.

        Bodies are not read, so nothing is verified. Ends at the first byte that is not a complete group.
        """
        size = os.fstat(self._fd).st_size
        data, begin = memoryview(b""), self.position
        while True:
            if self.position + ENVELOPE_BYTES > begin + len(data):
                begin = self.position
                data = memoryview(self._read(HEADS_BYTES, begin))
            header = _header_at(data, self.position - begin)
            if header is None:  # it may be longer than what was read: each batch with an id is in it
                begin, data = self.position, memoryview(self._read_head(self.position, size))
                header = _header_at(data, 0)
            if header is None or self.position + header.size > size:
                return
            position = self.position
            self.position += header.size
            yield position, header

    def _whole(self, data: memoryview, at: int) -> bool:
        return 0 < self._size(data, at) <= len(data) - at

    def _size(self, data: memoryview, at: int) -> int:
        try:
            return size_at(data, at)
        except LogDamageError as error:
            raise self._damage(error) from error

    def _load(self) -> memoryview:
        """The bytes at the position, with at least one complete group if there is one."""
        data = self._read_data(self._chunk)
        while (size := self._size(data, 0)) > len(data):
            if size <= LARGEST_CHUNK_BYTES:
                self._chunk = max(self._chunk, size)  # the next one may be as large
            if self.position + size > os.fstat(self._fd).st_size:
                raise self._damage(LogDamageError("the group is cut off"))
            data = self._map(size) if size > MAPPED_BYTES else self._read_data(size)
        return data

    def _read_data(self, size: int) -> memoryview:
        if self._memory is None:
            return memoryview(self._read(size, self.position))
        try:
            return self._memory.read(size, self.position)
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise
            raise self._damage(LogDamageError(error.strerror or str(error))) from error

    def _map(self, size: int) -> memoryview:
        skip = self.position % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self._fd, skip + size, access=mmap.ACCESS_READ, offset=self.position - skip)
        return memoryview(mapped)[skip:]

    def _read(self, size: int, position: int) -> bytes:
        try:
            return os.pread(self._fd, size, position)
        except OSError as error:  # a bad block is damage, too
            raise LogDamageError(f"{self.path}, byte {position:,}: {error.strerror}") from error

    def ends_at(self, position: int) -> bool:
        """Whether no group begins there at present."""
        prefix = self._read(PREFIX_BYTES, position)
        return len(prefix) < PREFIX_BYTES or prefix in ENDS

    def _read_head(self, position: int, size: int) -> bytes:
        """The prefix and the metadata of the group there; nothing if they do not fit into a file of this size."""
        prefix = self._read(PREFIX_BYTES, position)
        end = PREFIX_BYTES + int.from_bytes(prefix[4:], "little")
        return self._read(end, position) if prefix[:4] == CONTINUES and position + end <= size else b""

    def begins_at(self, position: int, offset: int) -> bool:
        """Whether the header there, unverified, has this first offset."""
        header = _header_at(memoryview(self._read_head(position, os.fstat(self._fd).st_size)), 0)
        return header is not None and header.first == offset

    def has_trailing_bytes(self) -> bool:
        """Whether any byte behind the position is not zero."""
        rest = range(self.position, os.fstat(self._fd).st_size, CHUNK_BYTES)
        return any(self._read(CHUNK_BYTES, position).strip(b"\0") for position in rest)

    # -- past damage -------------------------------------------------------------------------------------

    def find_group(self, first: int) -> GroupHeader | None:
        """Moves to the next valid group behind the position that begins at that offset or later.

        Without such a group the position stays. A payload may contain the bytes of a group: the checksum with the
        seed of this log rules out foreign groups, and the offset rules out old groups of this log.
        """
        here = self.position
        for position in self._candidates(here + PREFIX_BYTES):
            self.position = position
            try:
                data = self._load()
                header = read_header(data, 0, self.layout.seed) if self._whole(data, 0) else None
            except LogDamageError:
                continue
            if header and header.first >= first:
                return header
        self.position = here
        return None

    def _candidates(self, begin: int) -> Iterator[int]:
        """Positions at which a group may begin: a prefix with a header soon behind it."""
        for position in range(begin, os.fstat(self._fd).st_size, CHUNK_BYTES):
            try:
                data = self._read(CHUNK_BYTES + ENVELOPE_BYTES, position)
            except LogDamageError:
                continue
            for match in PREFIX.finditer(data):
                at = match.start()
                aligned = at < CHUNK_BYTES and (position + at) % ALIGNED_BYTES == 0
                if aligned and data.find(OPENING, at, at + ENVELOPE_BYTES) > 0:
                    yield position + at

    def _damage(self, error: LogDamageError) -> LogDamageError:
        return LogDamageError(f"{self.path}, byte {self.position:,}: {error}")


def _header_at(data: memoryview, position: int) -> GroupHeader | None:
    """Unverified. None without a complete header."""
    try:
        return header_at(data, position)
    except LogDamageError:
        return None
