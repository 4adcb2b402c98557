"""Frames of rows that can be sent again: a task gets its rows from Spark only once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

MEMORY_BYTES = 64 * 1024 * 1024
"""Frames beyond this go to a temporary file."""


class InFile(NamedTuple):
    position: int
    size: int


class ReplayableFrames:
    """Each iteration starts with the first frame. After the known frames it takes new ones from the source."""

    def __init__(self, frames: Iterable[tuple[int, memoryview]], memory_bytes: int = MEMORY_BYTES) -> None:
        self._new = iter(frames)
        self._known: list[tuple[int, memoryview | InFile]] = []
        self._room = memory_bytes
        self._file: IO[bytes] | None = None

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        for rows, frame in self._known:
            yield rows, self._read(frame) if isinstance(frame, InFile) else frame
        for rows, frame in self._new:
            self._known.append((rows, self._keep(frame)))
            yield rows, frame

    def close(self) -> None:
        if self._file:
            self._file.close()

    def has_rows(self) -> bool:
        return any(rows for rows, _ in self)

    def _keep(self, frame: memoryview) -> memoryview | InFile:
        if len(frame) <= self._room:
            self._room -= len(frame)
            return frame
        self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 -- `close` closes it
        position = self._file.seek(0, 2)
        self._file.write(frame)
        return InFile(position, len(frame))

    def _read(self, frame: InFile) -> memoryview:
        assert self._file
        self._file.seek(frame.position)
        return memoryview(self._file.read(frame.size))
