"""Memory that a file is read into again and again, past the page cache where the file system can do that.

To read a large file once through new memory and new pages of the cache takes several times as long.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE


class ReadMemory:
    def __init__(self, path: Path) -> None:
        self._memory = mmap.mmap(-1, PAGE_BYTES)
        self._fd = _open(path)

    def read(self, size: int, position: int) -> memoryview:
        """Up to so many bytes from there on. Valid until the next call."""
        skip = position % PAGE_BYTES
        room = -(-(skip + size) // PAGE_BYTES) * PAGE_BYTES
        if room > len(self._memory):
            self._memory = mmap.mmap(-1, room)
        view = memoryview(self._memory)[:room]
        done = self._read_into(view, position - skip)
        return view[skip : max(skip, min(done, skip + size))]

    def _read_into(self, view: memoryview, position: int) -> int:
        try:
            return os.preadv(self._fd, [view], position)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        fcntl.fcntl(self._fd, fcntl.F_SETFL, 0)  # without O_DIRECT: the file system has larger pages
        return os.preadv(self._fd, [view], position)

    def close(self) -> None:
        os.close(self._fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, os.O_RDONLY)
