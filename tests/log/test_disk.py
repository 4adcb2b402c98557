"""Groups are written in C and in Python alike: the prefix last."""

from __future__ import annotations

import errno
import mmap
import os
import random
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from polycast.log.files import disk as module
from polycast.log.files.disk import DISK, Disk

each = pytest.mark.parametrize("disk", [Disk(), DISK], ids=["python", "c"])
DATA = bytes(range(256)) * 20
PREFIX = 8


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler: apt-get install gcc")
def test_the_functions_are_compiled() -> None:
    assert module.COMPILED


@each
def test_one_piece_and_several(disk: Disk, fd: int) -> None:
    disk.append(fd, [DATA], 0, PREFIX)
    disk.append(fd, [bytearray(DATA[:100]), memoryview(DATA)[100:]], len(DATA), PREFIX)
    disk.append(fd, [DATA[:PREFIX]], 2 * len(DATA), PREFIX)
    assert os.pread(fd, 3 * len(DATA), 0) == DATA + DATA + DATA[:PREFIX]


@each
def test_without_its_body_a_group_has_no_prefix(disk: Disk, fd: int) -> None:
    """The limit of the size of files cuts the body off."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(DATA) // 2, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            disk.append(fd, [DATA], 0, PREFIX)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.errno == errno.EFBIG
    assert not os.pread(fd, PREFIX, 0).strip(b"\0")


@each
def test_a_file_that_is_not_open(disk: Disk) -> None:
    with pytest.raises(OSError) as raised:
        disk.append(-1, [DATA], 0, PREFIX)
    assert raised.value.errno == errno.EBADF


# -- past the page cache ---------------------------------------------------------------------------------

needs_c = pytest.mark.skipif(not module.COMPILED, reason="polycast.log.files._disk is not compiled here")
PAGE = 4096
MIB = 1024 * 1024


def as_packed(data: bytes, position: int) -> memoryview:
    """In memory as far behind the beginning of a page as in the file."""
    memory = memoryview(mmap.mmap(-1, len(data) + PAGE))[position % PAGE :][: len(data)]
    memory[:] = data
    return memory


@needs_c
@pytest.mark.parametrize("position", [0, 8, PAGE - PREFIX, PAGE - 1, PAGE, 5 * PAGE + 100])
@pytest.mark.parametrize("size", [MIB + 2 * PAGE, MIB + 3 * PAGE - 1, 3 * MIB + 7])
def test_whole_pages_are_written_past_the_page_cache(tmp_path: Path, fd: int, position: int, size: int) -> None:
    """Here to another file, which shows them."""
    data = random.Random(7).randbytes(size)
    pages = os.open(tmp_path / "pages", os.O_RDWR | os.O_CREAT)
    try:
        DISK.append(fd, [as_packed(data, position)], position, PREFIX, pages)
        first = -(-(position + PREFIX) // PAGE) * PAGE
        after = (position + size) // PAGE * PAGE
        assert os.pread(pages, after, first) == data[first - position : after - position]
        assert os.pread(fd, first - position, position) == data[: first - position]
        assert not os.pread(fd, after - first, first).strip(b"\0")
        assert os.pread(fd, PAGE, after) == data[after - position :]
    finally:
        os.close(pages)


@needs_c
@pytest.mark.parametrize("shift", [0, 1])
def test_a_file_system_that_cannot_write_past_the_page_cache(fd: int, shift: int) -> None:
    """A file of /proc refuses everything with the same error. Memory at another place is not even tried."""
    data = DATA * (2 * MIB // len(DATA))
    refused = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            os.write(refused, data)
        DISK.append(fd, [as_packed(data, 100 + shift)], 100, PREFIX, refused)
    finally:
        os.close(refused)
    assert os.pread(fd, len(data), 100) == data


@needs_c
def test_no_prefix_without_the_pages(fd: int) -> None:
    data = DATA * (2 * MIB // len(DATA))
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError) as raised:
            DISK.append(fd, [as_packed(data, 100)], 100, PREFIX, full)
    finally:
        os.close(full)
    assert raised.value.errno == errno.ENOSPC
    assert not os.pread(fd, PREFIX, 100).strip(b"\0")
