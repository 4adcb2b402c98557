"""Sealing, retention and wishes, behind the writer's back."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.wire import wait_for
from log.house import House
from log.shelf import BEGAN, SECOND, flip
from polycast.log.files.disk import Disk
from polycast.log.files.folder import SEAL_REQUEST
from polycast.log.files.quarantine import QUARANTINE
from polycast.log.settings import LogSettings
from polycast.log.upkeep import retention, sealing
from polycast.log.upkeep.housekeeping import Housekeeping


@pytest.fixture
def settings() -> LogSettings:
    return LogSettings(seal_share=1.0, keep_free="0")


@pytest.fixture
def house(tmp_path: Path, settings: LogSettings) -> House:
    return House(tmp_path, settings)


# -- sealing ---------------------------------------------------------------------------------------------


def test_everything_but_the_active_segment_is_sealed(house: House) -> None:
    for _ in range(3):
        house.shelf.segment(5)
    house.closed = 10
    house.keeper.round()
    assert house.names() == [".parquet", "5.parquet", "10.arrows"]
    assert house.keeper.segments_sealed == 2
    assert house.keeper.bytes_sealed > 4000
    assert house.snapshots > 0
    house.closed = None
    house.keeper.round()
    assert house.names() == [".parquet", "5.parquet", "10.parquet"]
    assert house.offsets() == [*range(15)]


def test_sealing_can_be_off(tmp_path: Path, settings: LogSettings) -> None:
    house = House(tmp_path, replace(settings, seal=False))
    house.shelf.segment(5)
    house.keeper.round()
    assert house.names() == [".arrows"]


def test_a_segment_that_never_got_a_message_goes(house: House) -> None:
    house.shelf.segment()
    house.shelf.next += 1
    house.shelf.segment(5)
    house.keeper.round()
    assert house.names() == ["1.parquet"]


def test_damage_is_put_aside_and_the_rest_is_sealed(house: House) -> None:
    path = house.shelf.segment(5, 5, 5)
    flip(path, house.shelf.positions[1] + 900)
    house.shelf.segment(5)
    house.keeper.round()
    assert house.keeper.segments_quarantined == 1
    assert (house.shelf.folder / QUARANTINE / path.name).exists()
    house.keeper.round()
    assert house.names() == [".parquet", "10.parquet", "15.parquet"]
    assert house.offsets() == [*range(5), *range(10, 20)]


class FullDisk(Disk):
    full = True

    def write(self, fd: int, data: memoryview | bytes, position: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(fd, data, position)


def test_a_full_disk_is_said_once_and_tried_again_later(
    tmp_path: Path, settings: LogSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk()
    house = House(tmp_path, settings, disk)
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    house.shelf.segment(5)
    house.shelf.segment(5)
    for _ in range(5):
        house.keeper.round()
        now[0] += 40
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: sealing: [Errno 28] No space left on device; it is retried"
    ]
    assert house.names() == [".arrows", "5.arrows"]
    house.keeper.round()
    disk.full = False
    house.keeper.round()
    assert house.names() == [".arrows", "5.arrows"]  # not yet
    now[0] += 40
    house.keeper.round()
    assert house.names() == [".parquet", "5.parquet"]


def test_snapshots_that_fail_do_not_keep_it_from_sealing(tmp_path: Path, settings: LogSettings) -> None:
    def fail() -> None:
        raise ValueError("as you wish")

    house = House(tmp_path, settings)
    keeper = Housekeeping(tmp_path, settings, lambda: 5, lambda: None, fail)
    house.shelf.segment(5)
    keeper.round()
    assert house.names() == [".parquet"]


# -- retention -------------------------------------------------------------------------------------------


def test_retention_by_bytes(tmp_path: Path, settings: LogSettings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    house = House(tmp_path, replace(settings, seal=False, retain_bytes=10_000))
    for _ in range(5):
        house.shelf.segment(5)
    house.keeper.round()
    assert house.names() == ["15.arrows", "20.arrows"]  # each takes one page of 4,096 bytes
    assert (house.keeper.segments_removed, house.keeper.messages_removed) == (3, 15)
    assert "removed 00000000000000000005.arrows: offsets 5 to 9, 5 messages, 4,096 bytes" in caplog.text


def test_retention_removes_what_belongs_to_a_segment(tmp_path: Path, settings: LogSettings) -> None:
    house = House(tmp_path, replace(settings, retain_bytes=1))
    path = house.shelf.segment(5)
    for suffix in (".topics", ".batches"):
        path.with_suffix(suffix).write_bytes(b"")
    house.shelf.segment(5)
    house.keeper.round()
    assert house.names() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json"]


def test_the_active_segment_is_never_removed(tmp_path: Path, settings: LogSettings) -> None:
    house = House(tmp_path, replace(settings, retain_bytes=1, retain_seconds=0.001))
    house.shelf.segment(5)
    house.shelf.begin()
    house.shelf.add(5)
    house.closed = 5
    house.keeper.round()
    assert house.names() == ["5.arrows"]


@pytest.mark.parametrize("seal", [True, False])
def test_retention_by_age(
    tmp_path: Path, settings: LogSettings, monkeypatch: pytest.MonkeyPatch, seal: bool
) -> None:
    """Offset n has the time n: segments end at 9, 19 and 29 seconds."""
    house = House(tmp_path, replace(settings, seal=seal, retain_seconds=100.0))
    for _ in range(3):
        house.shelf.segment(5, 5)
    suffix = ".parquet" if seal else ".arrows"
    for now, expected in ((108, ["", "10", "20"]), (111, ["10", "20"]), (121, ["20"]), (500, [])):
        monkeypatch.setattr(time, "time", lambda now=now: BEGAN / SECOND + now)
        house.keeper.round()
        assert house.names() == [f"{name}{suffix}" for name in expected]


def test_a_damaged_segment_is_as_old_as_its_file(tmp_path: Path, settings: LogSettings) -> None:
    house = House(tmp_path, replace(settings, retain_seconds=100.0))
    house.shelf.segment(5)
    path = tmp_path / "00000000000000000000.parquet"
    path.write_bytes(b"damaged")
    (tmp_path / "00000000000000000000.arrows").unlink()
    kept = retention.Retention(tmp_path, replace(settings, retain_seconds=100.0))
    kept.apply(5, path.stat().st_mtime + 50)
    assert path.exists()
    kept.apply(5, path.stat().st_mtime + 150)
    assert not path.exists()


# -- wishes ----------------------------------------------------------------------------------------------


def test_somebody_wants_everything_sealed(tmp_path: Path, settings: LogSettings) -> None:
    house = House(tmp_path, replace(settings, seal=False))
    house.shelf.segment(5)
    house.shelf.begin()
    house.shelf.add(5)
    house.closed = 5
    (tmp_path / SEAL_REQUEST).touch()
    house.keeper.round()
    assert house.rolls == 1
    assert house.names() == [".parquet", "5.parquet"]
    assert not (tmp_path / SEAL_REQUEST).exists()


def test_a_wish_waits_until_the_segment_has_ended(house: House, tmp_path: Path) -> None:
    """The writer hears of it some time later; what is begun meanwhile is not meant."""
    house.shelf.begin()
    house.shelf.add(5)
    house.closed = 0
    (tmp_path / SEAL_REQUEST).touch()
    roll, house.keeper._roll = house.keeper._roll, lambda: None
    house.keeper.round()
    assert house.names() == [".arrows"]
    assert (tmp_path / SEAL_REQUEST).exists()
    roll()
    house.shelf.begin()
    house.shelf.add(5)
    house.closed = 5
    house.keeper.round()
    assert house.names() == [".parquet", "5.arrows"]
    assert not (tmp_path / SEAL_REQUEST).exists()


def test_a_wish_for_nothing(house: House, tmp_path: Path) -> None:
    (tmp_path / SEAL_REQUEST).touch()
    house.keeper.round()
    assert house.rolls == 0
    assert not (tmp_path / SEAL_REQUEST).exists()


# -- the thread ------------------------------------------------------------------------------------------


@pytest.fixture
def running(house: House) -> Iterator[House]:
    house.keeper.start()
    yield house
    house.keeper.stop()


def test_it_comes_when_it_is_called(running: House) -> None:
    running.shelf.segment(5)
    running.keeper.wake()
    wait_for(lambda: running.names() == [".parquet"], "the segment to be sealed")


def test_it_stays_out_of_the_way(running: House) -> None:
    wait_for(lambda: running.snapshots, "the first round")
    [thread] = [thread for thread in threading.enumerate() if thread.name == "log-housekeeping"]
    assert thread.native_id
    assert os.getpriority(os.PRIO_PROCESS, thread.native_id) == 10
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0


def test_it_stops_in_the_middle_of_sealing(
    tmp_path: Path, settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a share of one percent it rests for long; a stop does not wait for that."""
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "thread_time", lambda: float(next(clock)))
    house = House(tmp_path, replace(settings, seal_share=0.01))
    house.shelf.segment(*[10] * 20)
    house.keeper.start()
    wait_for(lambda: list(tmp_path.glob("*.tmp")), "sealing to begin")
    house.keeper.stop()
    assert house.names() == [".arrows"]
    assert list(tmp_path.glob("*.tmp")) == []
