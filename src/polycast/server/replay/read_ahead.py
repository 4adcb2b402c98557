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


class ReadAhead:
    def __init__(self, folder: Path, start: Start) -> None:
        """`start` runs work in a thread."""
        self._folder = folder
        self._start = start
        self._reader: Reader | None = None
        self._ahead: tuple[int, asyncio.Future[ReadRows]] | None = None
        """The read in progress, or done and not used, and its first offset."""

    async def read(self, offset: int, stop: int) -> ReadRows:
        """The rows from this offset on. Rows that were not read ahead end before the offset `stop`."""
        found = await self._take() if self._ahead and self._ahead[0] == offset else None
        if found is None or found.batch is None:  # there may be rows by now, or a reason why there are none
            await self.close()
            self.begin(offset, stop)
            found = await self._take()
        return found

    async def _take(self) -> ReadRows:
        assert self._ahead
        reading, self._ahead = self._ahead[1], None
        return await reading

    def begin(self, offset: int, stop: int) -> None:
        """Starts the next read."""
        if self._reader is None:
            self._reader = Reader(self._folder, offset)
        self._ahead = offset, self._start(once(_read, self._reader, offset, stop))

    async def close(self) -> None:
        """Drops what was read ahead. The next read opens the file again."""
        ahead, self._ahead = self._ahead, None
        reader, self._reader = self._reader, None
        if ahead:
            await asyncio.gather(ahead[1], return_exceptions=True)
        if reader:
            reader.close()


def _read(reader: Reader, offset: int, stop: int) -> ReadRows:
    reader.seek(offset)
    batch = reader.read(stop, ROWS)
    if batch is None:
        reader.finish(stop)
    skipped, reader.skipped = reader.skipped, []
    return ReadRows(batch, skipped, reader.offset if batch else max(reader.offset, stop))
