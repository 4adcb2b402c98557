"""A hot segment: groups are added at its end, and read from anywhere.

A group is there as a whole or not at all: its body is written first and its prefix last, into room that was
allocated before and reads as zeros. What a failed write left is cut off again, so that behind the last group
there is nothing but zeros.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from polycast.errors import LogDamageError
from polycast.log.files.disk import DISK, TEMPORARY, Disk
from polycast.log.files.format import (
    ENDS,
    ENVELOPE_BYTES,
    OPENING,
    PREFIX_BYTES,
    SCHEMA,
    GroupHeader,
    Layout,
    header_at,
    read_batch,
    read_header,
    read_layout,
    size_at,
)

ALLOCATE_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
PAGE_BYTES = 4096
REMEMBERED_BYTES = 16 * 1024 * 1024
"""How much of what is on the disk stays in the system's memory. Whoever is further behind reads from the disk;
memory that is used over and over is many times faster to write to, most of all on a virtual machine."""
HEADS_BYTES = 64 * 1024
"""What is read where only the heads of groups count."""
MAPPED_BYTES = 16 * 1024 * 1024
"""A group that is larger is not copied into memory: as many may read it at a time as like."""
ALIGNED_BYTES = 8
PREFIX = re.compile(rb"(?=\xff\xff\xff\xff...\0)", re.DOTALL)
"""The prefix of a group whose metadata takes less than 16 MiB."""


class HotSegment:
    """One that is being written. `end` is where the next group goes."""

    def __init__(self, path: Path, fd: int, layout: Layout, end: int, disk: Disk) -> None:
        self.path = path
        self.layout = layout
        self.end = end
        self._fd = fd
        self._disk = disk
        self._allocated = end
        self._torn = False
        """Whether something is left of a group that failed."""
        self._forgotten = 0

    @classmethod
    def create(cls, path: Path, layout: Layout, disk: Disk = DISK) -> HotSegment:
        """It gets its name when its head is there: nobody ever finds one without."""
        if path.exists():
            raise FileExistsError(errno.EEXIST, "there is such a segment already", str(path))
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

    def append(self, pieces: Sequence[memoryview]) -> None:
        """Adds a group. If that fails, the segment is as it was before."""
        end = self.end + sum(map(len, pieces))
        if self._torn:
            self.cut()
        try:
            self._torn = True
            self._make_room(end + PREFIX_BYTES)
            at = self.end + PREFIX_BYTES
            for piece in (pieces[0][PREFIX_BYTES:], *pieces[1:]):
                self._disk.write(self._fd, piece, at)
                at += len(piece)
            self._disk.write(self._fd, pieces[0][:PREFIX_BYTES], self.end)
        except OSError:
            with contextlib.suppress(OSError):  # then before the next one
                self.cut()
            raise
        self.end = end
        self._torn = False

    def sync(self) -> None:
        self._disk.sync(self._fd)
        behind = self.end - REMEMBERED_BYTES - self._forgotten
        if behind >= ALLOCATE_BYTES:
            self._disk.forget(self._fd, self._forgotten, behind)
            self._forgotten += behind

    def cut(self) -> None:
        self._disk.cut(self._fd, self.end)
        self._allocated = self.end
        self._torn = False

    def close(self) -> None:
        """Gives back what was allocated, but for the page with the zeros that say where it ends."""
        size = -(-(self.end + PREFIX_BYTES) // PAGE_BYTES) * PAGE_BYTES
        try:
            self._disk.cut(self._fd, size)
            self._disk.sync(self._fd)
        finally:
            os.close(self._fd)

    def _make_room(self, end: int) -> None:
        if end <= self._allocated:
            return
        try:
            self._allocate(end + ALLOCATE_BYTES)
        except OSError:
            self._allocate(end)  # the disk is nearly full

    def _allocate(self, end: int) -> None:
        self._disk.allocate(self._fd, self._allocated, end - self._allocated)
        self._allocated = end


class Group(NamedTuple):
    """A group as it was found, its checksum right."""

    position: int
    header: GroupHeader
    batch: pa.RecordBatch


class GroupPosition(NamedTuple):
    """The byte of a hot segment at which the group with this first offset begins."""

    segment: int
    offset: int
    byte: int


class HotReader:
    """Reads whole groups while somebody writes more of them. Damage raises LogDamageError, at its place."""

    def __init__(self, path: Path, layout: Layout | None = None) -> None:
        """`layout` stands in for what the file begins with, where that cannot be read."""
        self.path = path
        self.stands_in = layout is not None
        self._fd = os.open(path, os.O_RDONLY)
        try:
            self.layout = layout or self._read_layout()
        except LogDamageError as error:
            os.close(self._fd)
            raise LogDamageError(f"{path}: {error}") from error
        self.position = len(self.layout.head)

    def _read_layout(self) -> Layout:
        layout = read_layout(self._read(CHUNK_BYTES, 0))
        if not layout.schema.equals(SCHEMA):
            raise LogDamageError("its schema is not that of a log")
        return layout

    def close(self) -> None:
        os.close(self._fd)

    def groups(self, skip_to: int = 0) -> Iterator[Group]:
        """From `position` on to the end as it is now; `position` follows.

        Groups that lie before the offset `skip_to` as a whole are checked and passed over.
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
                yield Group(position, header, read_batch(data, at, header, self.layout))
            at += header.size

    def headers(self) -> Iterator[tuple[int, GroupHeader]]:
        """What the groups from `position` on say about themselves, each with where it begins; `position` follows.

        Their bodies are not read, so nothing is proven. Where something else stands than a group, this ends, as
        it does where a group is not whole.
        """
        size = os.fstat(self._fd).st_size
        data, begin = memoryview(b""), self.position
        while True:
            if self.position + ENVELOPE_BYTES > begin + len(data):
                begin = self.position
                data = memoryview(self._read(HEADS_BYTES, begin))
            header = _header_at(data, self.position - begin)
            if header is None and begin < self.position:
                begin, data = self.position, memoryview(self._read(CHUNK_BYTES, self.position))
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
        """What is at the position, with a whole group in it if there is one."""
        data = memoryview(self._read(CHUNK_BYTES, self.position))
        while (size := self._size(data, 0)) > len(data):
            if self.position + size > os.fstat(self._fd).st_size:
                raise self._damage(LogDamageError("the group is cut off"))
            data = self._map(size) if size > MAPPED_BYTES else memoryview(self._read(size, self.position))
        return data

    def _map(self, size: int) -> memoryview:
        skip = self.position % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self._fd, skip + size, access=mmap.ACCESS_READ, offset=self.position - skip)
        return memoryview(mapped)[skip:]

    def _read(self, size: int, position: int) -> bytes:
        try:
            return os.pread(self._fd, size, position)
        except OSError as error:  # a bad block is damage like any other
            raise LogDamageError(f"{self.path}, byte {position:,}: {error.strerror}") from error

    def ends_at(self, position: int) -> bool:
        """Whether no group begins there, as it is now."""
        prefix = self._read(PREFIX_BYTES, position)
        return len(prefix) < PREFIX_BYTES or prefix in ENDS

    def begins_at(self, position: int, offset: int) -> bool:
        """Whether a group that has this offset first begins there, by its own account."""
        header = _header_at(memoryview(self._read(HEADS_BYTES, position)), 0)
        return header is not None and header.first == offset

    def has_rest(self) -> bool:
        """Whether there is anything but zeros behind the position."""
        rest = range(self.position, os.fstat(self._fd).st_size, CHUNK_BYTES)
        return any(self._read(CHUNK_BYTES, position).strip(b"\0") for position in rest)

    # -- past damage -------------------------------------------------------------------------------------

    def find(self, first: int) -> GroupHeader | None:
        """Moves on to the next group behind the position that is right and begins at that offset or later.

        Without one the position stays. Payloads may hold what looks like a group: a checksum with the seed of
        this log proves that it is one, and the offset that it is not an old one in a payload.
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
        """Where a group may begin: there is a prefix, and soon behind it a header."""
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
    """Unchecked; None if there is none, or not all of it."""
    try:
        return header_at(data, position)
    except LogDamageError:
        return None
