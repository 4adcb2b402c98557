"""The spool: staged rows on disk, so that they survive a restart of the broker.

    DIR/stages/00000000000000000012.stage     one file per stage

A file has the frames of its stage, in order:

    "PCSTAGE"      7 bytes
    version        1 byte
    head bytes     uint32, little-endian
    data bytes     uint64
    checksum       uint64: xxh3_64 of everything behind it
    head           JSON {"owner", "batch_id", "name", "before"}; `before` is the number of rows before this frame
    data           the frame as its publisher sent it, an Arrow IPC stream; nothing if it has no rows

A frame is durable when `append` returns. File names are numbers only: the name that a peer gave its stage is in
the head.

Part of a stage is useless. A file that is cut off or damaged is therefore removed when it is loaded. A file of a
newer version is not loaded and stays.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import xxhash

from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import file_name, first_offset_of, make_folder
from polycast.model import BatchKey

log = logging.getLogger("polycast.stages")

SUFFIX = ".stage"
MAGIC = b"PCSTAGE"
VERSION = 1
PREFIX = struct.Struct("<7sBIQQ")
THREADS = 4
"""The threads mostly wait for the disk."""
FOLDER_LOCK = threading.Lock()


class FrameHead(msgspec.Struct, frozen=True):
    owner: str
    batch_id: str
    name: str
    before: int

    @property
    def batch(self) -> BatchKey:
        return BatchKey(self.owner, self.batch_id)


class Frame(NamedTuple):
    head: FrameHead
    data: memoryview


class SpoolError(Exception):
    """A file of the spool cannot be read."""


class NewerVersionError(SpoolError):
    """A newer version of Polycast wrote the file."""


class StageFile:
    """The file of one stage. One append at a time; `remove` may be called at any time, from any thread."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._size = 0
        self._removed = False
        self._lock = threading.Lock()

    @property
    def exists(self) -> bool:
        return self._size > 0

    def append(self, head: FrameHead, data: bytes) -> None:
        """Returns when the frame is durable, or the file is removed. After an OSError the file cannot be used any
        more."""
        with self._lock:
            if self._removed:
                return
            if not self._size:
                with FOLDER_LOCK:  # a stage is durable only if its folder is
                    make_folder(self.path.parent, self._disk)
            end = self._write(_to_prefix(head, data), data)
            if not self._size:
                self._disk.sync_folder(self.path.parent)
            self._size = end

    def _write(self, *pieces: bytes) -> int:
        fd = os.open(self.path, os.O_WRONLY | (0 if self._size else os.O_CREAT | os.O_EXCL), 0o644)
        try:
            at = self._size
            for piece in pieces:
                self._disk.write(fd, piece, at)
                at += len(piece)
            self._disk.sync(fd)
            self._disk.drop_cache(fd, self._size, at - self._size)  # only a restart reads the file
            return at
        finally:
            os.close(fd)

    def remove(self) -> None:
        with self._lock:
            self._removed = True
            try:
                self.path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be removed: %s", self.path, error.strerror)

    def load(self) -> list[Frame]:
        """Raises SpoolError if the file is cut off or damaged."""
        try:
            data = memoryview(self.path.read_bytes())
        except OSError as error:
            raise SpoolError(error.strerror) from error
        self._size = len(data)
        return list(_frames(data))


class Spool:
    def __init__(self, folder: Path, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._executor = ThreadPoolExecutor(THREADS, "spool")
        self._stopped = False
        self._next = 1 + max(map(_number_of, self._paths()), default=-1)

    def load(self) -> Iterator[tuple[StageFile, list[Frame]]]:
        """The stages of an earlier run, oldest first. Removes files that are cut off or damaged."""
        for path in sorted(self._paths()):
            file = StageFile(path, self._disk)
            try:
                yield file, file.load()
            except NewerVersionError as error:
                log.warning("%s is not loaded: %s", path, error)
            except SpoolError as error:
                log.warning("%s is removed, and its stage is lost: %s", path, error)
                file.remove()

    def create(self) -> StageFile:
        """The file of a new stage. Created on disk with its first frame."""
        path = self._folder / file_name(self._next, SUFFIX)
        self._next += 1
        return StageFile(path, self._disk)

    def append(self, file: StageFile, head: FrameHead, data: bytes) -> Future[None]:
        return self._executor.submit(file.append, head, data)

    def remove(self, files: Iterable[StageFile]) -> None:
        """Removes files in the background. Not durable by itself: a stage may be there again after a power
        failure."""
        for file in files:
            if self._stopped:
                file.remove()
            else:
                self._executor.submit(file.remove)

    def stop(self) -> None:
        """Finishes all work in progress."""
        self._stopped = True
        self._executor.shutdown()

    def _paths(self) -> list[Path]:
        found = self._folder.glob(f"*{SUFFIX}")
        return [path for path in found if first_offset_of(path) is not None]


def _number_of(path: Path) -> int:
    return int(path.stem)


# -- frames ----------------------------------------------------------------------------------------------


def _to_prefix(head: FrameHead, data: bytes) -> bytes:
    text = msgspec.json.encode(head)
    return PREFIX.pack(MAGIC, VERSION, len(text), len(data), _checksum(text, data)) + text


def _checksum(text: bytes | memoryview, data: bytes | memoryview) -> int:
    digest = xxhash.xxh3_64(text)
    digest.update(data)
    return digest.intdigest()


def _frames(content: memoryview) -> Iterator[Frame]:
    if not content:
        raise SpoolError("the file is empty")
    at = 0
    while at < len(content):
        frame, at = _read_frame(content, at)
        yield frame


def _read_frame(content: memoryview, at: int) -> tuple[Frame, int]:
    if len(content) - at < PREFIX.size:
        raise SpoolError(f"the file ends inside a frame, at byte {len(content):,}")
    magic, version, head_bytes, data_bytes, checksum = PREFIX.unpack_from(content, at)
    if magic != MAGIC:
        raise SpoolError(f"there is no frame at byte {at:,}")
    if version > VERSION:
        raise NewerVersionError(f"its version is {version}, and this program reads versions up to {VERSION}")
    body = at + PREFIX.size
    end = body + head_bytes + data_bytes
    if end > len(content):
        raise SpoolError(f"the file ends inside a frame, at byte {len(content):,}")
    text, data = content[body : body + head_bytes], content[body + head_bytes : end]
    if _checksum(text, data) != checksum:
        raise SpoolError(f"the checksum of the frame at byte {at:,} is wrong")
    try:
        return Frame(msgspec.json.decode(text, type=FrameHead), data), end
    except msgspec.DecodeError as error:
        raise SpoolError(f"the head of the frame at byte {at:,} is wrong: {error}") from error
