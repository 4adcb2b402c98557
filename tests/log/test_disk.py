"""Groups are written in C and in Python alike: the prefix last."""

from __future__ import annotations

import errno
import os
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
