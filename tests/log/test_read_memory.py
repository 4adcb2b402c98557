"""Files are read into memory that is used again, past the page cache or not."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
from pathlib import Path

import pytest

from log.log_builder import LogBuilder
from polycast.log.files.folder import Segment
from polycast.log.files.hot import HotReader
from polycast.log.files.read_memory import ReadMemory
from polycast.log.read.snapshot_delta import read_delta, to_delta

SIZE = 30_000


@pytest.fixture(params=["direct", "refused"])
def direct(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a file system that opens a file for direct reads, and then refuses them: its pages are larger."""
    read = os.preadv

    def refuse(fd: int, buffers: list[memoryview], position: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return read(fd, buffers, position)

    if request.param == "refused":
        monkeypatch.setattr(os, "preadv", refuse)


@pytest.mark.usefixtures("direct")
def test_any_part_of_a_file(tmp_path: Path) -> None:
    data = random.Random(7).randbytes(SIZE)
    (tmp_path / "file").write_bytes(data)
    memory = ReadMemory(tmp_path / "file")
    for position in (0, 1, 4095, 4096, 12_345, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE):
        for size in (1, 4096, 10_000, 2 * SIZE, 3):
            assert memory.read(size, position) == data[position : position + size]
    memory.close()


@pytest.mark.usefixtures("direct")
def test_a_delta_is_the_same(tmp_path: Path) -> None:
    path = LogBuilder(tmp_path).segment(5, 1000, 3, 20_000, 7)
    reader = HotReader(path)
    expected = to_delta(reader.groups())
    reader.close()
    found = read_delta(Segment(0, path))
    assert found and expected
    assert found.rows.equals(expected.rows)
    assert found._replace(rows=expected.rows) == expected


def test_a_lack_of_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot is written later, with the batch ids of the segment."""
    path = LogBuilder(tmp_path).segment(5)
    provide = mmap.mmap

    def refuse(fd: int, size: int) -> mmap.mmap:
        if size > mmap.PAGESIZE:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return provide(fd, size)

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        read_delta(Segment(0, path))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReadMemory(tmp_path / "file")
