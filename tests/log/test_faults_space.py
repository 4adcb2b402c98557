"""A full disk: groups that do not fit are refused, the gap is recorded, and storing resumes when space is free."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from crash.log_checks import Gap, check_log, read_with_pyarrow, read_with_reader
from log.log_builder import findings
from log.log_rig import FaultyDisk, LogRecord, LogRig, open_rig, reserve_few
from polycast.log.files import hot

FULL = errno.ENOSPC
REASON = "No space left on device"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    monkeypatch.setattr(hot, "ALLOCATE_BYTES", 64)  # so that every group needs room
    monkeypatch.setattr(hot, "ALLOCATE_GROUPS", 0)
    return FaultyDisk()


def check(open_rig: LogRig) -> list[Gap]:
    """All readers read exactly the durable messages. Gaps are recorded."""
    rows, gaps = read_with_pyarrow(open_rig.folder)
    assert [LogRecord(*row) for row in rows] == open_rig.durable
    assert read_with_reader(open_rig.folder) == rows
    check_log(rows, gaps)
    return gaps


def check_verified(folder: Path) -> None:
    assert findings(folder) == []


@pytest.mark.parametrize("action", ["allocate", "write"])
def test_a_group_that_does_not_fit_on_the_disk(tmp_path: Path, disk: FaultyDisk, action: str) -> None:
    with open_rig(tmp_path, disk) as rig:
        rig.fill(3)
        disk.fail(action, ".arrows", FULL)
        announced = [rig.publish(("t0", b"no"), ("t9", b"no")), rig.publish(("t0", b"neither"))]
        assert [(each.first, each.next, each.reason) for each in announced] == [(3, 5, REASON), (5, 6, REASON)]
        lost = rig.log.lost
        assert lost and (lost.first, lost.next, lost.missed) == (3, 6, True)
        assert check(rig) == []
        disk.heal()
        assert not rig.publish(("t0", b"yes")).reason
        assert rig.log.lost is None
        assert [(gap.first, gap.next) for gap in check(rig)] == [(3, 6)]
        rig.fill(2)
        [gap] = check(rig)
        assert REASON in gap.reason
        assert rig.log.messages_lost == 3
    check_verified(rig.folder)


@pytest.mark.parametrize("passing", [0, 1])
def test_a_group_is_written_in_part(tmp_path: Path, disk: FaultyDisk, passing: int) -> None:
    """The body, or the body and half of the prefix. Readers never see the group."""
    with open_rig(tmp_path, disk) as rig:
        rig.fill(3)
        disk.fail("write", ".arrows", errno.EIO, times=1, passing=passing)
        assert rig.publish(("t0", b"x" * 5000)).reason == "Input/output error"
        check(rig)
        rig.fill(1)
        check(rig)
    check_verified(rig.folder)


def test_a_failed_append_cannot_be_truncated(tmp_path: Path, disk: FaultyDisk) -> None:
    """No group is written before the truncation: a shorter group would leave the end of the longer one."""
    with open_rig(tmp_path, disk) as rig:
        rig.fill(3)
        disk.fail("write", ".arrows", FULL, times=1, passing=1)
        disk.fail("truncate", ".arrows", errno.EIO, times=2)
        assert rig.publish(("t0", b"\xff" * 5000)).reason == REASON
        assert rig.publish(("t0", b"short")).reason == "Input/output error"
        rig.fill(2)
        assert [(gap.first, gap.next) for gap in check(rig)] == [(3, 5)]
    check_verified(rig.folder)


def test_nearly_full(tmp_path: Path, disk: FaultyDisk) -> None:
    """The disk has space for the group, but not for the allocation ahead."""
    with open_rig(tmp_path, disk) as rig:
        for _ in range(5):
            disk.fail("allocate", ".arrows", FULL, times=1)
            rig.fill(1)
            disk.heal()
        check(rig)
    assert disk.failures == ["allocate 00000000000000000000.arrows"] * 5


def test_full_from_the_beginning(tmp_path: Path, disk: FaultyDisk) -> None:
    with open_rig(tmp_path, disk) as rig:
        disk.fail("write", ".arrows", FULL)
        assert rig.publish(("a", b"1")).reason == REASON
        assert list(rig.folder.glob("*.arrows")) == []
        disk.heal()
        rig.fill(1)
        assert [(gap.first, gap.next) for gap in check(rig)] == [(0, 1)]
    check_verified(rig.folder)


def test_full_when_a_segment_ends(tmp_path: Path, disk: FaultyDisk) -> None:
    """No segment can be created."""
    with open_rig(tmp_path, disk, segment_bytes=65_536) as rig:
        rig.fill(1, size=70_000)
        disk.fail("write", ".arrows", FULL)
        assert [rig.publish((topic, b"no")).reason for topic in ("a", "b")] == [REASON, REASON]
        disk.heal()
        rig.fill(2)
        assert [(gap.first, gap.next) for gap in check(rig)] == [(1, 3)]
        assert [path.stem.lstrip("0") for path in sorted(rig.folder.glob("*.arrows"))] == ["", "3"]
    check_verified(rig.folder)


def test_a_stop_while_it_is_full(tmp_path: Path, disk: FaultyDisk) -> None:
    """The next start records the gap, and does not reuse its numbers."""
    with open_rig(tmp_path, disk) as rig:
        rig.fill(3)
        disk.fail("allocate", ".arrows", FULL)
        assert rig.publish(("t0", b"no"), ("new", b"no")).reason
    check_verified(rig.folder)
    with open_rig(tmp_path) as reopened:
        pass
    with open_rig(tmp_path) as reopened:
        assert reopened.publish(("t0", b"yes"), ("new", b"yes")).first == 5
        reopened.durable = rig.durable + reopened.durable
        [gap] = check(reopened)
        assert (gap.first, gap.next) == (3, 5) and REASON in gap.reason
        assert [record.sequence for record in reopened.durable[3:]] == [2, 1]
    check_verified(reopened.folder)


def test_a_full_disk_is_logged_once(tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "polycast.log")
    with open_rig(tmp_path, disk) as rig:
        disk.fail("write", ".arrows", FULL)
        for _ in range(3):
            rig.publish(("a", b"1"))
        disk.heal()
        rig.fill(3)
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == 2
    assert REASON in words[0] and "stored again" in words[1]


def test_offsets_do_not_run_out_while_it_is_full(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live delivery goes on: the state file is overwritten in place on a full disk."""
    reserve_few(monkeypatch, 100)
    with open_rig(tmp_path, disk) as rig:
        rig.fill(1)
        disk.fail("write", ".arrows", FULL)
        disk.fail("write", ".tmp", FULL)
        for _ in range(500):
            assert rig.log.has_room(1)
            assert rig.publish(("a", b"no")).reason
        disk.heal()
        image = rig.crash(tmp_path)
        rig.fill(1)
        check(rig)
    with open_rig(image) as other:
        assert other.log.next >= 501
        assert other.hub.router.topics.use(b"a").next_sequence >= 500


def test_the_reservation_cannot_be_written(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve_few(monkeypatch, 100)
    with open_rig(tmp_path, disk) as rig:
        rig.fill(40)
        disk.fail("sync", "state.json", errno.EIO)
        reasons = [rig.publish(("a", b"maybe")).reason for _ in range(30)]
        assert "Input/output error" in reasons
        assert rig.log.next < rig.log.writer.reserved
        disk.heal()
        rig.fill(70)
        check(rig)
        assert rig.log.next + 50 <= rig.log.writer.reserved
    check_verified(rig.folder)
