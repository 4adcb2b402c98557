"""A disk that simulates power failures.

Fsynced data is there. Of later writes, any sector may be missing; so may the new size of a file, the name of a
file whose folder was not fsynced, and the removal of a file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from log.log_rig import path_of
from polycast.log.files.disk import Disk
from polycast.model import Buffer

SECTOR_BYTES = 512


class File:
    def __init__(self) -> None:
        self.durable = b""
        self.sectors: list[tuple[int, bytes]] = []
        """Written, but not durable."""

    def write(self, data: bytes, position: int) -> None:
        while data:
            room = SECTOR_BYTES - position % SECTOR_BYTES
            self.sectors.append((position, data[:room]))
            data, position = data[room:], position + room

    def make_durable(self, data: bytes) -> None:
        self.durable = data
        self.sectors = []

    def after_failure(self, random: Random, size: int) -> bytes:
        share = random.choice((0.0, 0.5, 0.9, 1.0))
        left = bytearray(self.durable.ljust(size, b"\0"))
        for position, data in self.sectors:
            if random.random() < share and position + len(data) <= len(left):
                left[position : position + len(data)] = data
        return bytes(left[: random.choice((size, len(self.durable)))])


class PowerDisk(Disk):
    def __init__(self, random: Random, on_action: Callable[[], None]) -> None:
        self._random = random
        self._on_action = on_action
        self._lock = threading.RLock()
        self._files: dict[Path, File] = {}
        self._names: set[Path] = set()
        """Durable file names."""

    def write_pieces(self, fd: int, pieces: Sequence[Buffer], position: int) -> None:
        with self._lock:
            self._on_action()
            self._file(fd).write(b"".join(pieces), position)
            super().write_pieces(fd, pieces, position)

    def allocate(self, fd: int, position: int, size: int) -> None:
        with self._lock:
            self._file(fd)
            super().allocate(fd, position, size)

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            self._on_action()
            super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        with self._lock:
            self._on_action()
            self._file(fd).make_durable(Path(path_of(fd)).read_bytes())

    def sync_folder(self, folder: Path) -> None:
        with self._lock:
            self._on_action()
            self._names = {path for path in self._names if path.parent != folder or path.exists()}
            self._names |= {path for path in self._files if path.parent == folder and path.exists()}

    def rename(self, old: Path, new: Path) -> None:
        """The former file of that name is not modelled: `replace` fsyncs the folder right behind it."""
        with self._lock:
            self._on_action()
            file = self._files.pop(old)
            super().rename(old, new)
            self._files[new] = file
            self._names.add(new)

    def _file(self, fd: int) -> File:
        return self._files.setdefault(Path(path_of(fd)), File())

    def fail(self, target: Path) -> None:
        """Writes the remains of the folder `log` into another folder."""
        with self._lock:
            folder = target / "log"
            folder.mkdir(parents=True)
            for path, file in self._files.items():
                if self._survives(path):
                    size = path.stat().st_size if path.exists() else len(file.durable)
                    (folder / path.name).write_bytes(file.after_failure(self._random, size))

    def _survives(self, path: Path) -> bool:
        if path in self._names and path.exists():
            return True
        return (path in self._names or path.exists()) and self._random.random() < 0.5
