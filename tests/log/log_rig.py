"""An open log without a broker, and a disk with injected failures.

rig = LogRig(tmp_path, disk)
assert not rig.publish(("a", b"1")).reason
image = rig.crash(tmp_path)        # the folder as a killed process would leave it
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest

from broker.numbering import NumberingHub
from kit.wire import GUARD_SECONDS
from polycast.log import log
from polycast.log.batch_ids import KnownBatch
from polycast.log.durable import Durable
from polycast.log.files.disk import DISK, Disk
from polycast.log.log import Log
from polycast.log.repair import recovery
from polycast.log.settings import LogSettings
from polycast.log.times import to_micros
from polycast.log.write import writer
from polycast.model import BatchKey, Buffer, Burst, Format
from polycast.routing import Topic

TOPICS = 1000
RESERVE = 1000
NOW = 1_700_000_000.0
OWNER = "owner"
"""The owner of batches."""


class LogRecord(NamedTuple):
    offset: int
    topic: str
    sequence: int
    payload: bytes


class LogRig:
    """Publishing waits until the messages are durable or lost."""

    def __init__(self, data: Path, disk: Disk = DISK, topics: int = TOPICS, **settings: Any) -> None:
        self.data = data
        self.folder = data / "log"
        self.log = Log.open(
            LogSettings(data=str(data), **{"seal": False, "keep_free": "0", **settings}), topics, disk
        )
        self.hub = NumberingHub(topics)
        found = self.log.recovered
        rows = zip(*(found.topics[name].to_pylist() for name in found.topics.column_names), strict=True)
        self.hub.router.topics.restore([Topic(*row) for row in rows], found.floor)
        self.hub.ledger.next_offset = self.log.next
        self.durable: list[LogRecord] = []
        self.lost: list[LogRecord] = []
        self._posted: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._announced: list[Durable] = []
        self._me = self.hub.join(self)
        self.log.on_durable(self._announced.append)
        self.log.start(self._posted.put)

    def publish(
        self, *messages: tuple[str, bytes], batch_id: str = "", owner: str = OWNER, now: float = NOW
    ) -> Durable:
        burst = self.append(*messages, batch_id=batch_id, owner=owner, now=now)
        durable = self.wait_durable()
        (self.lost if durable.reason else self.durable).extend(records_in(burst))
        return durable

    def append(
        self, *messages: tuple[str, bytes], batch_id: str = "", owner: str = OWNER, now: float = NOW
    ) -> Burst:
        """Does not wait until the messages are durable."""
        burst = Burst.of("some", [(topic.encode(), payload, Format.BYTES) for topic, payload in messages])
        publication = self.hub.publish(burst, self._me)
        batch = BatchKey(owner, batch_id) if batch_id else None
        micros = max(self.log.micros, to_micros(now))
        if batch:
            self.log.batches.add(batch, burst.offset, len(burst), micros)
        self.log.append(publication.bursts, "me", micros, batch, len(burst))
        return burst

    def find(self, batch_id: str, now: float = NOW, owner: str = OWNER) -> KnownBatch | None:
        """The remembered batch."""
        return self.log.batches.find(BatchKey(owner, batch_id), to_micros(now))

    def wait_durable(self, patience: float = GUARD_SECONDS) -> Durable:
        """The next announcement of the log."""
        self._posted.get(timeout=patience)()
        return self._announced.pop()

    def reserve(self, count: int) -> str:
        """The error of the log, if any."""
        errors: list[str] = []
        self.log.reserve_offsets(count, errors.append)
        self._posted.get(timeout=GUARD_SECONDS)()
        return errors[0]

    def is_silent(self) -> bool:
        """Whether the log has announced nothing."""
        return self._posted.empty()

    def fill(self, count: int, topics: int = 3, size: int = 20) -> None:
        """Publishes groups of one message."""
        for number in range(count):
            durable = self.publish((f"t{number % topics}", b"%d " % self.log.next + bytes(size)))
            assert not durable.reason

    def crash(self, place: Path) -> Path:
        """A copy of the data folder, taken while no file is being renamed."""
        image = place / f"image-{len(list(place.glob('image-*')))}"
        try:
            shutil.copytree(self.data, image, ignore=shutil.ignore_patterns("image-*"))
        except shutil.Error:
            shutil.rmtree(image)
            return self.crash(place)
        return image

    def topics(self) -> dict[str, tuple[int, int]]:
        return {topic.name: (topic.next_sequence, topic.last_offset) for topic in self.hub.router.topics}

    def close(self) -> None:
        topics = self.hub.router.topics
        self.log.close([(topic.name, topic.next_sequence, topic.last_offset) for topic in topics], topics.floor)


@contextmanager
def open_rig(data: Path, disk: Disk = DISK, **settings: Any) -> Iterator[LogRig]:
    opened = LogRig(data, disk, **settings)
    try:
        yield opened
    finally:
        opened.close()


def records_in(burst: Burst) -> list[LogRecord]:
    messages = list(burst.messages())
    return [
        LogRecord(burst.offset + i, messages[i].topic, burst.sequences[run] + i - first, messages[i].payload)
        for run, first, last in burst.runs()
        for i in range(first, last)
    ]


def reserve_few(monkeypatch: pytest.MonkeyPatch, count: int = RESERVE) -> None:
    for module in (writer, log, recovery):
        monkeypatch.setattr(module, "RESERVE", count)


class HastyDisk(Disk):
    """Skips fsync, for tests with very many files."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


HASTY = HastyDisk()


# -- a disk that fails -----------------------------------------------------------------------------------


@dataclass
class Fault:
    action: str
    name: str
    error: int
    times: int
    passing: int


class FaultyDisk(Disk):
    """`disk.fail("sync", ".arrows")`: every fsync of such a file fails, until `disk.heal()`."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.failures: list[str] = []

    def fail(self, action: str, name: str, error: int = errno.EIO, times: int = 1 << 30, passing: int = 0) -> None:
        """`passing`: calls that succeed before. A failing write writes half of its data."""
        self._faults.append(Fault(action, name, error, times, passing))

    def heal(self) -> None:
        self._faults.clear()

    def _check(self, action: str, path: Path | str) -> None:
        for fault in self._faults:
            if fault.action != action or fault.name not in str(path):
                continue
            fault.passing -= 1
            if fault.passing < 0 < fault.times:
                fault.times -= 1
                self.failures.append(f"{action} {Path(path).name}")
                raise OSError(fault.error, os.strerror(fault.error))

    def write_pieces(self, fd: int, pieces: Sequence[Buffer], position: int) -> None:
        try:
            self._check("write", path_of(fd))
        except OSError:
            data = b"".join(pieces)
            super().write_pieces(fd, [data[: len(data) // 2]], position)
            raise
        super().write_pieces(fd, pieces, position)

    def allocate(self, fd: int, position: int, size: int) -> None:
        self._check("allocate", path_of(fd))
        super().allocate(fd, position, size)

    def truncate(self, fd: int, size: int) -> None:
        self._check("truncate", path_of(fd))
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._check("sync", path_of(fd))
        super().sync(fd)

    def sync_folder(self, folder: Path) -> None:
        self._check("sync_folder", folder)
        super().sync_folder(folder)

    def rename(self, old: Path, new: Path) -> None:
        self._check("rename", new)
        super().rename(old, new)


def path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())
