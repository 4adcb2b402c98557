"""What the log asks of the file system, in one place, so that tests can make each of it fail.

`write` goes on until all is written. Folders are synced too: a name is as safe as the folder that holds it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Disk:
    def write(self, fd: int, data: memoryview | bytes, position: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(fd, view, position)
            view, position = view[done:], position + done

    def allocate(self, fd: int, position: int, size: int) -> None:
        """Makes sure that there is room; what was not written reads as zeros."""
        os.posix_fallocate(fd, position, size)

    def cut(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def forget(self, fd: int, position: int, size: int) -> None:
        """What the system keeps of it in memory may go; it is on the disk."""
        with contextlib.suppress(OSError):  # it was an offer
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)

    def room(self, folder: Path) -> int:
        """How many bytes more it could hold."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def capacity(self, folder: Path) -> int:
        """How many bytes its file system has for everybody together."""
        found = os.statvfs(folder)
        return found.f_blocks * found.f_frsize

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Both in one folder; afterwards the new name is safe."""
        old.rename(new)
        self.sync_folder(new.parent)

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """The file is the old one or the new one, whatever happens."""
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
        """Takes no room that is not there already."""
        fd = os.open(path, os.O_RDWR)
        try:
            self.write(fd, data, 0)
            self.cut(fd, len(data))
            self.sync(fd)
        finally:
            os.close(fd)


TEMPORARY = ".tmp"
DISK = Disk()
