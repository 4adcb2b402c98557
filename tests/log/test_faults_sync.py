"""After a failed fsync the state of the disk is unknown: nothing is acknowledged and nothing is retried."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from queue import Empty

import pytest

from crash.evidence import check_log, read_with_pyarrow
from kit.wire import wait_for
from log.desk import FaultyDisk, Said, desk

BROKEN = "fsync failed"


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def test_every_group_is_refused_after_a_failed_fsync(
    tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "polycast.log")
    with desk(tmp_path, disk) as here:
        here.fill(3)
        disk.fail("sync", ".arrows", times=1)
        reasons = [here.publish(("t0", b"no"), batch_id=f"b{n}").reason for n in range(3)]
        disk.heal()
        reasons.append(here.publish(("t0", b"no")).reason)
        assert all(reason.startswith(BROKEN) and "starts again" in reason for reason in reasons)
        assert [here.find(f"b{n}", 0) for n in range(3)] == [None] * 3
        image = here.crash(tmp_path)
    assert disk.failures == ["sync 00000000000000000000.arrows"]
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    for place in (image, tmp_path):  # an orderly stop is no cleaner than a kill then
        with desk(place) as again:
            rows, gaps = read_with_pyarrow(again.folder)
            assert [Said(*row) for row in rows[:3]] == here.kept
            assert again.log.next >= here.log.next
            taken = max(said.sequence for said in here.lost)
            assert again.hub.router.topics.use(b"t0").next_sequence > taken
            again.fill(3)
            rows, gaps = read_with_pyarrow(again.folder)
            assert [Said(*row) for row in rows[-3:]] == again.kept
            check_log(rows, gaps)


def test_a_segment_that_ends_cannot_be_synced(tmp_path: Path, disk: FaultyDisk) -> None:
    """No message goes to the next segment."""
    with desk(tmp_path, disk, segment_bytes=65_536, sync="never") as here:
        disk.fail("sync", ".arrows", passing=1)  # the first is for its beginning
        here.fill(1, size=70_000)
        assert here.publish(("a", b"no")).reason.startswith(BROKEN)
        assert here.publish(("a", b"no")).reason.startswith(BROKEN)
        assert len(list(here.folder.glob("*.arrows"))) == 1
        image = here.crash(tmp_path)
    with desk(image) as again:
        again.fill(1)
        rows, gaps = read_with_pyarrow(again.folder)
        assert [Said(*row) for row in rows] == here.kept + again.kept
        check_log(rows, gaps)


def test_a_sync_in_time_fails(tmp_path: Path, disk: FaultyDisk) -> None:
    with desk(tmp_path, disk, sync="interval", sync_seconds=0.001) as here:
        disk.fail("sync", ".arrows", passing=1)
        here.fill(1)
        wait_for(lambda: here.log.writer.failed, "the sync")
        assert here.publish(("a", b"no")).reason.startswith(BROKEN)


def test_a_sync_in_time_needs_no_messages(tmp_path: Path, disk: FaultyDisk) -> None:
    with desk(tmp_path, disk, sync="interval", sync_seconds=0.001) as here:
        here.fill(1)
        wait_for(lambda: here.log.writer.syncer.times.count, "the sync")


def test_waiting_groups_are_refused_too(tmp_path: Path, disk: FaultyDisk) -> None:
    """Written during the failing fsync, and announced as lost."""
    with desk(tmp_path, disk) as here:
        here.fill(1)
        disk.fail("sync", ".arrows", errno.EIO)
        for _ in range(20):
            here.say(("t0", b"no"))
        told = [here.wait_durable() for _ in range(1)]
        while told[-1].next < here.log.next:
            told.append(here.wait_durable())
        assert all(each.reason.startswith(BROKEN) for each in told)
        with pytest.raises(Empty):
            here.wait_durable(0.0)


def test_the_beginning_of_a_segment_cannot_be_synced(tmp_path: Path, disk: FaultyDisk) -> None:
    """The file has no durable messages: it is removed, and the next group begins another one."""
    with desk(tmp_path, disk) as here:
        disk.fail("sync", ".arrows", times=1)
        assert here.publish(("a", b"no")).reason == "Input/output error"
        assert list(here.folder.glob("*.arrows")) == []
        here.fill(2)
        rows, gaps = read_with_pyarrow(here.folder)
        assert [Said(*row) for row in rows] == here.kept
        check_log(rows, gaps)


@pytest.mark.parametrize("action", ["sync_folder", "rename"])
def test_a_segment_cannot_get_its_name(tmp_path: Path, disk: FaultyDisk, action: str) -> None:
    with desk(tmp_path, disk) as here:
        disk.fail(action, "log", times=1)
        assert here.publish(("a", b"no")).reason == "Input/output error"
        assert list(here.folder.glob("*.arrows")) == []
        here.fill(2)
        rows, gaps = read_with_pyarrow(here.folder)
        check_log(rows, gaps)
