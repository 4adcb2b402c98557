"""Housekeeping: sealing, retention and seal requests."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kit.wire import wait_for
from log.housekeeping_rig import HousekeepingRig
from log.log_builder import BEGAN, SECOND, flip
from polycast.log.files.disk import Disk
from polycast.log.files.folder import SEAL_REQUEST, Segment
from polycast.log.files.quarantine import QUARANTINE
from polycast.log.settings import LogSettings
from polycast.log.upkeep import retention, sealing
from polycast.log.upkeep.housekeeping import Housekeeping
from polycast.log.upkeep.inventory import Inventory
from polycast.log.upkeep.surge import RATE_SECONDS, SURGE_BYTES, SURGE_SECONDS
from polycast.model import Buffer


@pytest.fixture
def settings() -> LogSettings:
    return LogSettings(seal_share=1.0, keep_free="0")


@pytest.fixture
def rig(tmp_path: Path, settings: LogSettings) -> HousekeepingRig:
    return HousekeepingRig(tmp_path, settings)


# -- sealing ---------------------------------------------------------------------------------------------


def test_everything_but_the_active_segment_is_sealed(rig: HousekeepingRig) -> None:
    for _ in range(3):
        rig.builder.segment(5)
    rig.closed = 10
    rig.housekeeping.round()
    assert rig.names() == [".parquet", "5.parquet", "10.arrows"]
    assert rig.housekeeping.segments_sealed == 2
    assert rig.housekeeping.bytes_sealed > 4000
    assert rig.snapshots > 0
    rig.closed = None
    rig.housekeeping.round()
    assert rig.names() == [".parquet", "5.parquet", "10.parquet"]
    assert rig.offsets() == [*range(15)]


def test_sealing_can_be_off(tmp_path: Path, settings: LogSettings) -> None:
    rig = HousekeepingRig(tmp_path, replace(settings, seal=False))
    rig.builder.segment(5)
    rig.housekeeping.round()
    assert rig.names() == [".arrows"]


def test_sealing_and_snapshots_wait_for_the_end_of_a_surge(tmp_path: Path, settings: LogSettings) -> None:
    rig = HousekeepingRig(tmp_path, settings, written=lambda: SURGE_BYTES)

    def round_after(seconds: float) -> list[str]:
        """What makes a surge of a second was written in this time."""
        surge = rig.housekeeping._surge
        surge._bytes, surge._at = 0, time.monotonic() - seconds
        rig.housekeeping.round()
        return rig.names()

    rig.builder.segment(5)
    assert round_after(0.9) == [".arrows"]
    assert rig.waited == [True]
    rig.waited.clear()
    assert round_after(5.0) == [".parquet"]
    assert not any(rig.waited)
    rig.builder.segment(5)
    assert round_after(0.9) == [".parquet", "5.arrows"]
    (tmp_path / SEAL_REQUEST).touch()
    assert round_after(0.9) == [".parquet", "5.parquet"]
    path = rig.builder.segment(5)
    os.utime(path, (0, time.time() - SURGE_SECONDS))
    assert round_after(0.9) == [".parquet", "5.parquet", "10.parquet"]
    path = rig.builder.segment(5)
    os.utime(path, (0, time.time() + 2 * SURGE_SECONDS))  # the clock was set back
    assert round_after(0.9) == [".parquet", "5.parquet", "10.parquet", "15.parquet"]


def test_sealing_goes_on_when_a_surge_ends(
    tmp_path: Path, settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had begun before the surge."""
    rig = HousekeepingRig(tmp_path, settings)
    path = rig.builder.segment(5)
    answers = iter([True, True, False])
    rounds: list[float] = []
    monkeypatch.setattr(rig.housekeeping._surge, "delays", lambda _: next(answers))
    monkeypatch.setattr(rig.housekeeping._stopped, "wait", rounds.append)
    rig.housekeeping._pause(0.5, Segment(0, path))
    assert rounds == [0.5, RATE_SECONDS, RATE_SECONDS]


def test_nothing_waits_while_retention_is_behind(tmp_path: Path, settings: LogSettings) -> None:
    rig = HousekeepingRig(tmp_path, replace(settings, retain_bytes=1), written=lambda: SURGE_BYTES)
    for _ in range(3):
        rig.builder.segment(5)
    rig.closed = 10
    rig.summarized = 0  # every segment is still needed for the next snapshot
    rig.housekeeping._surge._at -= 0.9
    rig.housekeeping.round()
    assert rig.waited[0]
    rig.waited.clear()
    rig.housekeeping._surge._bytes = 0
    rig.housekeeping._surge._at -= 0.9
    rig.housekeeping.round()
    assert not any(rig.waited)


def test_an_empty_segment_is_removed(rig: HousekeepingRig) -> None:
    rig.builder.segment()
    rig.builder.next += 1
    rig.builder.segment(5)
    rig.housekeeping.round()
    assert rig.names() == ["1.parquet"]


def test_a_damaged_segment_is_salvaged_and_sealed(rig: HousekeepingRig) -> None:
    path = rig.builder.segment(5, 5, 5)
    flip(path, rig.builder.positions[1] + 900)
    rig.builder.segment(5)
    rig.housekeeping.round()
    assert rig.housekeeping.segments_quarantined == 1
    assert (rig.builder.folder / QUARANTINE / path.name).exists()
    rig.housekeeping.round()
    assert rig.names() == [".parquet", "10.parquet", "15.parquet"]
    assert rig.offsets() == [*range(5), *range(10, 20)]


class FullDisk(Disk):
    full = True

    def write_pieces(self, fd: int, pieces: Sequence[Buffer], position: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_pieces(fd, pieces, position)


def test_a_full_disk_is_logged_once_and_retried(
    tmp_path: Path, settings: LogSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk()
    rig = HousekeepingRig(tmp_path, settings, disk)
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rig.builder.segment(5)
    rig.builder.segment(5)
    for _ in range(5):
        rig.housekeeping.round()
        now[0] += 40
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: sealing: [Errno 28] No space left on device; it is retried"
    ]
    assert rig.names() == [".arrows", "5.arrows"]
    rig.housekeeping.round()
    disk.full = False
    rig.housekeeping.round()
    assert rig.names() == [".arrows", "5.arrows"]  # not yet
    now[0] += 40
    rig.housekeeping.round()
    assert rig.names() == [".parquet", "5.parquet"]


def test_failing_snapshots_do_not_block_sealing(tmp_path: Path, settings: LogSettings) -> None:
    def fail(waits: object) -> None:
        raise ValueError("as you wish")

    rig = HousekeepingRig(tmp_path, settings)
    housekeeping = Housekeeping(tmp_path, settings, lambda: 5, lambda: None, fail)
    rig.builder.segment(5)
    housekeeping.round()
    assert rig.names() == [".parquet"]


# -- retention -------------------------------------------------------------------------------------------


def test_retention_by_bytes(tmp_path: Path, settings: LogSettings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = HousekeepingRig(tmp_path, replace(settings, seal=False, retain_bytes=10_000))
    for _ in range(5):
        rig.builder.segment(5)
    rig.housekeeping.round()
    assert rig.names() == ["15.arrows", "20.arrows"]  # each takes one page of 4,096 bytes
    assert (rig.housekeeping.segments_removed, rig.housekeeping.messages_removed) == (3, 15)
    assert "removed 00000000000000000005.arrows: offsets 5 to 9, 5 messages, 4,096 bytes" in caplog.text


def test_retention_removes_the_snapshot_of_a_segment(tmp_path: Path, settings: LogSettings) -> None:
    rig = HousekeepingRig(tmp_path, replace(settings, retain_bytes=1))
    path = rig.builder.segment(5)
    for suffix in (".topics", ".batches"):
        path.with_suffix(suffix).write_bytes(b"")
    rig.builder.segment(5)
    rig.housekeeping.round()
    assert rig.names() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json"]


def test_the_active_segment_is_never_removed(tmp_path: Path, settings: LogSettings) -> None:
    rig = HousekeepingRig(tmp_path, replace(settings, retain_bytes=1, retain_seconds=0.001))
    rig.builder.segment(5)
    rig.builder.begin()
    rig.builder.add(5)
    rig.closed = 5
    rig.housekeeping.round()
    assert rig.names() == ["5.arrows"]


@pytest.mark.parametrize("seal", [True, False])
def test_retention_by_age(
    tmp_path: Path, settings: LogSettings, monkeypatch: pytest.MonkeyPatch, seal: bool
) -> None:
    """Offset n has the time n: segments end at 9, 19 and 29 seconds."""
    rig = HousekeepingRig(tmp_path, replace(settings, seal=seal, retain_seconds=100.0))
    for _ in range(3):
        rig.builder.segment(5, 5)
    suffix = ".parquet" if seal else ".arrows"
    for now, expected in ((108, ["", "10", "20"]), (111, ["10", "20"]), (121, ["20"]), (500, [])):
        monkeypatch.setattr(time, "time", lambda now=now: BEGAN / SECOND + now)
        rig.housekeeping.round()
        assert rig.names() == [f"{name}{suffix}" for name in expected]


def test_a_damaged_segment_is_as_old_as_its_file(tmp_path: Path, settings: LogSettings) -> None:
    rig = HousekeepingRig(tmp_path, replace(settings, retain_seconds=100.0))
    rig.builder.segment(5)
    path = tmp_path / "00000000000000000000.parquet"
    path.write_bytes(b"damaged")
    (tmp_path / "00000000000000000000.arrows").unlink()
    stored = retention.Retention(tmp_path, replace(settings, retain_seconds=100.0), Inventory(tmp_path))
    stored.apply(5, path.stat().st_mtime + 50)
    assert path.exists()
    stored.apply(5, path.stat().st_mtime + 150)
    assert not path.exists()


# -- wishes ----------------------------------------------------------------------------------------------


def test_a_request_to_seal_everything(tmp_path: Path, settings: LogSettings) -> None:
    rig = HousekeepingRig(tmp_path, replace(settings, seal=False))
    rig.builder.segment(5)
    rig.builder.begin()
    rig.builder.add(5)
    rig.closed = 5
    (tmp_path / SEAL_REQUEST).touch()
    rig.housekeeping.round()
    assert rig.rolls == 1
    assert rig.names() == [".parquet", "5.parquet"]
    assert not (tmp_path / SEAL_REQUEST).exists()


def test_a_seal_request_waits_for_the_end_of_the_segment(rig: HousekeepingRig, tmp_path: Path) -> None:
    """The writer gets the request later; segments that begin meanwhile are not included."""
    rig.builder.begin()
    rig.builder.add(5)
    rig.closed = 0
    (tmp_path / SEAL_REQUEST).touch()
    roll, rig.housekeeping._roll = rig.housekeeping._roll, lambda: None
    rig.housekeeping.round()
    assert rig.names() == [".arrows"]
    assert (tmp_path / SEAL_REQUEST).exists()
    roll()
    rig.builder.begin()
    rig.builder.add(5)
    rig.closed = 5
    rig.housekeeping.round()
    assert rig.names() == [".parquet", "5.arrows"]
    assert not (tmp_path / SEAL_REQUEST).exists()


def test_a_seal_request_without_hot_segments(rig: HousekeepingRig, tmp_path: Path) -> None:
    (tmp_path / SEAL_REQUEST).touch()
    rig.housekeeping.round()
    assert rig.rolls == 0
    assert not (tmp_path / SEAL_REQUEST).exists()


# -- the thread ------------------------------------------------------------------------------------------


@pytest.fixture
def running(rig: HousekeepingRig) -> Iterator[HousekeepingRig]:
    rig.housekeeping.start()
    yield rig
    rig.housekeeping.stop()


def test_wake_starts_a_round(running: HousekeepingRig) -> None:
    running.builder.segment(5)
    running.housekeeping.wake()
    wait_for(lambda: running.names() == [".parquet"], "the segment to be sealed")


def test_the_thread_has_low_priority(running: HousekeepingRig) -> None:
    wait_for(lambda: running.snapshots, "the first round")
    [thread] = [thread for thread in threading.enumerate() if thread.name == "log-housekeeping"]
    assert thread.native_id
    assert os.getpriority(os.PRIO_PROCESS, thread.native_id) == 10
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0


def test_stop_interrupts_snapshots(rig: HousekeepingRig) -> None:
    """After a surge there may be gigabytes to read."""
    rig.builder.segment(5)
    rig.housekeeping.stop()
    rig.housekeeping.round()
    assert rig.waited == [True]


def test_stop_interrupts_sealing(tmp_path: Path, settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a share of one percent the pauses are long; a stop interrupts them."""
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "thread_time", lambda: float(next(clock)))
    rig = HousekeepingRig(tmp_path, replace(settings, seal_share=0.01))
    rig.builder.segment(*[10] * 20)
    rig.housekeeping.start()
    wait_for(lambda: list(tmp_path.glob("*.tmp")), "sealing to begin")
    rig.housekeeping.stop()
    assert rig.names() == [".arrows"]
    assert list(tmp_path.glob("*.tmp")) == []
