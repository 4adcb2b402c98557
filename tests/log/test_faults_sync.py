"""After a failed fsync the state of the disk is unknown: nothing is acknowledged and nothing is retried."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from queue import Empty

import pytest

from crash.log_checks import check_log, read_with_pyarrow
from kit.wire import wait_for
from log.log_rig import FaultyDisk, LogRecord, open_rig

BROKEN = "fsync failed"


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def test_every_group_is_refused_after_a_failed_fsync(
    tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "polycast.log")
    with open_rig(tmp_path, disk) as rig:
        rig.fill(3)
        disk.fail("sync", ".arrows", times=1)
        reasons = [rig.publish(("t0", b"no"), batch_id=f"b{n}").reason for n in range(3)]
        disk.heal()
        reasons.append(rig.publish(("t0", b"no")).reason)
        assert all(reason.startswith(BROKEN) and "starts again" in reason for reason in reasons)
        assert [rig.find(f"b{n}", 0) for n in range(3)] == [None] * 3
        image = rig.crash(tmp_path)
    assert disk.failures == ["sync 00000000000000000000.arrows"]
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    for place in (image, tmp_path):  # an orderly stop is no cleaner than a kill then
        with open_rig(place) as reopened:
            rows, gaps = read_with_pyarrow(reopened.folder)
            assert [LogRecord(*row) for row in rows[:3]] == rig.durable
            assert reopened.log.next >= rig.log.next
            taken = max(record.sequence for record in rig.lost)
            assert reopened.hub.router.topics.use(b"t0").next_sequence > taken
            reopened.fill(3)
            rows, gaps = read_with_pyarrow(reopened.folder)
            assert [LogRecord(*row) for row in rows[-3:]] == reopened.durable
            check_log(rows, gaps)


def test_a_segment_that_ends_cannot_be_synced(tmp_path: Path, disk: FaultyDisk) -> None:
    """No message goes to the next segment."""
    with open_rig(tmp_path, disk, segment_bytes=65_536, sync="never") as rig:
        disk.fail("sync", ".arrows", passing=1)  # the first is for its beginning
        rig.fill(1, size=70_000)
        assert rig.publish(("a", b"no")).reason.startswith(BROKEN)
        assert rig.publish(("a", b"no")).reason.startswith(BROKEN)
        assert len(list(rig.folder.glob("*.arrows"))) == 1
        image = rig.crash(tmp_path)
    with open_rig(image) as reopened:
        reopened.fill(1)
        rows, gaps = read_with_pyarrow(reopened.folder)
        assert [LogRecord(*row) for row in rows] == rig.durable + reopened.durable
        check_log(rows, gaps)


def test_a_sync_in_time_fails(tmp_path: Path, disk: FaultyDisk) -> None:
    with open_rig(tmp_path, disk, sync="interval", sync_seconds=0.001) as rig:
        disk.fail("sync", ".arrows", passing=1)
        rig.fill(1)
        wait_for(lambda: rig.log.writer.failed, "the sync")
        assert rig.publish(("a", b"no")).reason.startswith(BROKEN)


def test_a_sync_in_time_needs_no_messages(tmp_path: Path, disk: FaultyDisk) -> None:
    with open_rig(tmp_path, disk, sync="interval", sync_seconds=0.001) as rig:
        rig.fill(1)
        wait_for(lambda: rig.log.writer.syncer.times.count, "the sync")


def test_waiting_groups_are_refused_too(tmp_path: Path, disk: FaultyDisk) -> None:
    """Written during the failing fsync, and announced as lost."""
    with open_rig(tmp_path, disk) as rig:
        rig.fill(1)
        disk.fail("sync", ".arrows", errno.EIO)
        for _ in range(20):
            rig.append(("t0", b"no"))
        announced = [rig.wait_durable() for _ in range(1)]
        while announced[-1].next < rig.log.next:
            announced.append(rig.wait_durable())
        assert all(each.reason.startswith(BROKEN) for each in announced)
        with pytest.raises(Empty):
            rig.wait_durable(0.0)


def test_the_beginning_of_a_segment_cannot_be_synced(tmp_path: Path, disk: FaultyDisk) -> None:
    """The file has no durable messages: it is removed, and the next group begins another one."""
    with open_rig(tmp_path, disk) as rig:
        disk.fail("sync", ".arrows", times=1)
        assert rig.publish(("a", b"no")).reason == "Input/output error"
        assert list(rig.folder.glob("*.arrows")) == []
        rig.fill(2)
        rows, gaps = read_with_pyarrow(rig.folder)
        assert [LogRecord(*row) for row in rows] == rig.durable
        check_log(rows, gaps)


@pytest.mark.parametrize("action", ["sync_folder", "rename"])
def test_a_segment_cannot_get_its_name(tmp_path: Path, disk: FaultyDisk, action: str) -> None:
    with open_rig(tmp_path, disk) as rig:
        disk.fail(action, "log", times=1)
        assert rig.publish(("a", b"no")).reason == "Input/output error"
        assert list(rig.folder.glob("*.arrows")) == []
        rig.fill(2)
        rows, gaps = read_with_pyarrow(rig.folder)
        check_log(rows, gaps)
