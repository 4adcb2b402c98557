"""Salvage: valid groups stay readable, and the damaged file goes to the quarantine."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from log.log_builder import SEED, LogBuilder, flip, to_rows
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import segments
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.files.quarantine import QUARANTINE, read_lost
from polycast.log.files.state import LogState, write_state
from polycast.log.read.reader import Reader
from polycast.log.repair.recovery import inspect
from polycast.log.repair.salvage import salvage
from polycast.log.upkeep.sealing import seal
from polycast.model import Buffer


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    state = LogState(seed=f"{SEED:016x}", clean=True, next=0, reserved=0)
    write_state(tmp_path, state, DISK)
    return LogBuilder(tmp_path)


def names(folder: Path) -> list[str]:
    return [segment.path.name.lstrip("0") for segment in segments(folder)]


def offsets(folder: Path) -> list[int]:
    reader = Reader(folder, 0, ["offset"])
    found = []
    while (batch := reader.read()) is not None:
        found += [row["offset"] for row in to_rows([batch])]
    reader.close()
    return found


def test_damage_in_the_middle(builder: LogBuilder, caplog: pytest.LogCaptureFixture) -> None:
    path = builder.segment(5, 5, 5, 5, 5)
    flip(path, builder.positions[1] + 900)
    flip(path, builder.positions[3] + 900)
    damaged = path.read_bytes()
    made = salvage(path)
    assert [record.levelname for record in caplog.records] == ["CRITICAL"] * 2
    assert "offsets from 5 up to 10 are lost" in caplog.records[0].getMessage()
    assert names(builder.folder) == [".arrows", "10.arrows", "20.arrows"]
    assert made == [segment.path for segment in segments(builder.folder)]
    assert offsets(builder.folder) == [*range(5), *range(10, 15), *range(20, 25)]
    assert (builder.folder / QUARANTINE / path.name).read_bytes() == damaged
    where = f"lost to damage, see quarantine/{path.name}"
    assert read_lost(builder.folder) == [Gap(5, 10, where), Gap(15, 20, where)]
    reader = Reader(builder.folder, 7)
    assert reader.read() is not None
    assert reader.skipped == [Gap(7, 10, where)]


def test_what_was_saved_can_be_sealed(builder: LogBuilder) -> None:
    path = builder.segment(5, 5, 5)
    flip(path, builder.positions[1] + 900)
    for saved in salvage(path):
        assert seal(saved) is not None
    assert offsets(builder.folder) == [*range(5), *range(10, 15)]


def test_the_first_group_is_damaged(builder: LogBuilder) -> None:
    path = builder.segment(5, 5)
    flip(path, builder.positions[0] + 900)
    salvage(path)
    assert names(builder.folder) == ["5.arrows"]
    assert offsets(builder.folder) == [*range(5, 10)]


def test_the_last_group_is_damaged(builder: LogBuilder) -> None:
    path = builder.segment(5, 5)
    flip(path, builder.positions[1] + 900)
    builder.segment(5)
    salvage(path)
    assert names(builder.folder) == [".arrows", "10.arrows"]
    assert [(gap.first, gap.next) for gap in read_lost(builder.folder)] == [(5, 10)]


def test_losses_at_the_end_of_the_log_are_unknown(builder: LogBuilder) -> None:
    path = builder.segment(5, 5)
    flip(path, builder.positions[1] + 900)
    salvage(path)
    assert offsets(builder.folder) == [*range(5)]
    assert read_lost(builder.folder) == []


def test_all_of_it_is_damaged(builder: LogBuilder) -> None:
    path = builder.segment(5)
    flip(path, builder.positions[0] + 900)
    assert salvage(path) == []
    assert names(builder.folder) == []
    assert [path.name for path in (builder.folder / QUARANTINE).glob("*.arrows")] == [path.name]


@pytest.mark.parametrize("position", [0, 5, 100, 500])
def test_the_beginning_is_damaged(builder: LogBuilder, position: int) -> None:
    """The state file has the seed, so that checksums can be verified."""
    path = builder.segment(5, 5)
    data = bytearray(path.read_bytes())
    data[position : position + 8] = b"damaged!"
    path.write_bytes(data)
    assert salvage(path) == [path]
    assert offsets(builder.folder) == [*range(10)]


def test_the_beginning_is_damaged_and_the_seed_unknown(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    path = builder.segment(5)
    flip(path, 0)
    assert salvage(path) == []
    assert [path.name for path in (tmp_path / QUARANTINE).glob("*.arrows")] == [path.name]


def test_zeros_in_the_middle(builder: LogBuilder) -> None:
    path = builder.segment(5, 5, 5)
    data = bytearray(path.read_bytes())
    begin, end = builder.positions[1:]
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    salvage(path)
    assert names(builder.folder) == [".arrows", "10.arrows"]
    assert offsets(builder.folder) == [*range(5), *range(10, 15)]


def test_groups_behind_damage(builder: LogBuilder) -> None:
    path = builder.segment(5, 5, 5)
    assert not inspect(path).groups_behind
    flip(path, builder.positions[2] + 900)
    assert not inspect(path).groups_behind
    flip(path, builder.positions[1] + 900)
    assert not inspect(path).groups_behind
    flip(path, builder.positions[2] + 900)
    assert inspect(path).groups_behind


def test_groups_behind_a_damaged_beginning(builder: LogBuilder) -> None:
    path = builder.segment(5)
    flip(path, 0)
    assert inspect(path).groups_behind
    flip(path, builder.positions[0] + 900)
    assert not inspect(path).groups_behind


def test_a_copy_of_a_group_in_an_unfinished_payload(builder: LogBuilder) -> None:
    """An unfinished group contains valid groups of this file, but old ones."""
    path = builder.segment(5)
    copy = path.read_bytes()
    path.unlink()
    again = LogBuilder(builder.folder)
    again.begin()
    again.add(5)
    again.add(1, payload=copy)
    again.end()
    data = path.read_bytes()
    path.write_bytes(data[: again.positions[1] + 5200])
    assert data[: again.positions[1] + 5200].count(b"checksum") > 2
    assert not inspect(path).groups_behind


class FailingDisk(Disk):
    """Fails after this many calls."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_pieces(self, fd: int, pieces: Sequence[Buffer], position: int) -> None:
        self._step()
        super().write_pieces(fd, pieces, position)

    def sync(self, fd: int) -> None:
        self._step()
        super().sync(fd)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)


def test_salvage_can_fail_anywhere_and_be_retried(builder: LogBuilder) -> None:
    """Valid groups stay readable at any time, and the file is copied once."""
    path = builder.segment(5, 5, 5)
    flip(path, builder.positions[1] + 900)
    damaged = path.read_bytes()
    failures = 0
    while True:
        try:
            salvage(path, FailingDisk(failures))
        except OSError:
            failures += 1
            assert offsets(builder.folder) == [*range(5), *range(10, 15)]
            continue
        break
    assert failures > 8
    assert offsets(builder.folder) == [*range(5), *range(10, 15)]
    put_aside = [path for path in (builder.folder / QUARANTINE).iterdir() if path.suffix == ".arrows"]
    assert [path.read_bytes() for path in put_aside] == [damaged]
    assert len(list(HotReader(path).groups())) == 1
