"""Reads the log for one replay, a batch ahead: a thread decodes rows while the event loop encodes the rows before.

One read is in progress at a time, so the reader is never used by two threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from polycast.log.files.format import Gap
from polycast.log.files.hot import GroupPosition
from polycast.log.read.reader import Reader
from polycast.log.read.work import Work, once

ROWS = 16384
"""Messages per read."""


class ReadRows(NamedTuple):
    batch: pa.RecordBatch | None
    """None: there are no rows before the end of the read."""
    skipped: list[Gap]
    """Missing messages before these rows."""
    next: int
    """The offset at which the next read begins."""


Start = Callable[[Work[ReadRows]], "asyncio.Future[ReadRows]"]
FindPosition = Callable[[int], GroupPosition | None]
"""Where to begin to read a hot segment. To find an offset without it, all groups before are read and verified."""


class ReadAhead:
    def __init__(self, folder: Path, start: Start, find_position: FindPosition) -> None:
        """`start` runs work in a thread."""
        self._folder = folder
        self._start = start
        self._find_position = find_position
        self._reader: Reader | None = None
        self._ahead: tuple[int, asyncio.Future[ReadRows]] | None = None
        """The read in progress, or done and not used, and its first offset."""

    async def read(self, offset: int, stop: int) -> ReadRows:
        """The rows from this offset on. Rows that were not read ahead end before the offset `stop`."""
        found = await self._take() if self._ahead and self._ahead[0] == offset else None
        if found is None or found.batch is None:  # there may be rows by now, or a reason why there are none
            if found or not self._is_next(offset):
                await self.close()
            self.begin(offset, stop)
            found = await self._take()
        return found

    def _is_next(self, offset: int) -> bool:
        """Whether the reader continues there; it may have the rows already."""
        return self._reader is not None and self._ahead is None and self._reader.offset == offset

    async def _take(self) -> ReadRows:
        assert self._ahead
        reading, self._ahead = self._ahead[1], None
        return await reading

    def begin(self, offset: int, stop: int) -> None:
        """Starts the next read."""
        find_position: FindPosition | None = None
        if self._reader is None:
            self._reader, find_position = Reader(self._folder, offset), self._find_position
        self._ahead = offset, self._start(once(_read, self._reader, offset, stop, find_position))

    async def close(self) -> None:
        """Drops what was read ahead. The next read opens the file again."""
        ahead, self._ahead = self._ahead, None
        reader, self._reader = self._reader, None
        if ahead:
            await asyncio.gather(ahead[1], return_exceptions=True)
        if reader:
            reader.close()


def _read(reader: Reader, offset: int, stop: int, find_position: FindPosition | None) -> ReadRows:
    reader.seek(offset, find_position(offset) if find_position else None)
    batch = reader.read(stop, ROWS)
    if batch is None:
        reader.finish(stop)
    skipped, reader.skipped = reader.skipped, []
    return ReadRows(batch, skipped, reader.offset if batch else max(reader.offset, stop))
