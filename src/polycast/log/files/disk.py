"""System calls of the log in one place, so that tests can inject failures.

`write` writes all bytes. Folders are fsynced, too: a file name is durable only when its folder is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from polycast.model import Buffer

NO_FILE = -1


class Disk:
    def write(self, fd: int, data: Buffer, position: int) -> None:
        self.write_pieces(fd, [data], position)

    def write_pieces(self, fd: int, pieces: Sequence[Buffer], position: int) -> None:
        """One after the other, in one call: a call for each would wait for the interpreter each time."""
        rest = [memoryview(piece) for piece in pieces if piece]
        while rest:
            done = os.pwritev(fd, rest, position)
            position += done
            while rest and done >= len(rest[0]):
                done -= len(rest.pop(0))
            if done:
                rest[0] = rest[0][done:]

    def open_direct(self, path: Path) -> int:
        """For writes past the page cache; -1 where the file system does not have them."""
        return NO_FILE

    def append(self, fd: int, pieces: Sequence[Buffer], position: int, prefix: int, direct: int = NO_FILE) -> None:
        """The first bytes, up to `prefix`, are written last. `direct` may be used for whole pages."""
        head = memoryview(pieces[0])
        self.write_pieces(fd, [head[prefix:], *pieces[1:]], position + prefix)
        self.write(fd, head[:prefix], position)

    def allocate(self, fd: int, position: int, size: int) -> None:
        """Allocates space, which reads as zeros."""
        os.posix_fallocate(fd, position, size)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def drop_cache(self, fd: int, position: int, size: int) -> None:
        """Drops durable pages from the page cache."""
        with contextlib.suppress(OSError):  # only a hint
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)

    def free_bytes(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def capacity(self, folder: Path) -> int:
        """The size of the file system."""
        found = os.statvfs(folder)
        return found.f_blocks * found.f_frsize

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Both in one folder. The new name is durable afterwards."""
        old.rename(new)
        self.sync_folder(new.parent)

    def replace(self, path: Path, data: Buffer) -> None:
        """Atomic: the file has the old or the new content."""
        temporary = path.with_name(path.name + TEMPORARY)
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                self.write(fd, data, 0)
                self.sync(fd)
            finally:
                os.close(fd)
            self.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def overwrite(self, path: Path, data: bytes) -> None:
        """In place, without allocating space. Not atomic."""
        fd = os.open(path, os.O_RDWR)
        try:
            self.write(fd, data, 0)
            self.truncate(fd, len(data))
            self.sync(fd)
        finally:
            os.close(fd)


class CompiledDisk(Disk):
    def open_direct(self, path: Path) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_DIRECT)
        except OSError:
            return NO_FILE

    def append(self, fd: int, pieces: Sequence[Buffer], position: int, prefix: int, direct: int = NO_FILE) -> None:
        """One piece with one release of the GIL: each release waits for the interpreter."""
        if len(pieces) == 1:
            _disk.append(fd, pieces[0], position, prefix, direct)
        else:
            super().append(fd, pieces, position, prefix)


TEMPORARY = ".tmp"

try:
    from polycast.log.files import _disk
except ImportError:
    COMPILED = False
    DISK = Disk()
else:
    COMPILED = True
    DISK = CompiledDisk()
