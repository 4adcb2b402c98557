"""A full disk: groups that do not fit are refused, the gap is recorded, and storing resumes when space is free."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from crash.evidence import Gap, check_log, read_with_pyarrow, read_with_reader
from log.desk import Desk, FaultyDisk, Said, desk, reserve_few
from polycast.log.files import hot
from polycast.log.repair.verify import LogFinding, verify

FULL = errno.ENOSPC
REASON = "No space left on device"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    monkeypatch.setattr(hot, "ALLOCATE_BYTES", 64)  # so that every group needs room
    return FaultyDisk()


def check(desk: Desk) -> list[Gap]:
    """All readers read exactly the durable messages. Gaps are recorded."""
    rows, gaps = read_with_pyarrow(desk.folder)
    assert [Said(*row) for row in rows] == desk.kept
    assert read_with_reader(desk.folder) == rows
    check_log(rows, gaps)
    return gaps


def check_verified(folder: Path) -> None:
    assert [found for found in verify(folder) if isinstance(found, LogFinding)] == []


@pytest.mark.parametrize("action", ["allocate", "write"])
def test_a_group_that_does_not_fit_on_the_disk(tmp_path: Path, disk: FaultyDisk, action: str) -> None:
    with desk(tmp_path, disk) as here:
        here.fill(3)
        disk.fail(action, ".arrows", FULL)
        announced = [here.publish(("t0", b"no"), ("t9", b"no")), here.publish(("t0", b"neither"))]
        assert [(each.first, each.next, each.reason) for each in announced] == [(3, 5, REASON), (5, 6, REASON)]
        assert check(here) == []
        disk.heal()
        assert not here.publish(("t0", b"yes")).reason
        assert [(gap.first, gap.next) for gap in check(here)] == [(3, 6)]
        here.fill(2)
        [gap] = check(here)
        assert REASON in gap.reason
        assert here.log.messages_lost == 3
    check_verified(here.folder)


@pytest.mark.parametrize("passing", [0, 1])
def test_a_group_is_written_in_part(tmp_path: Path, disk: FaultyDisk, passing: int) -> None:
    """The body, or the body and half of the prefix. Readers never see the group."""
    with desk(tmp_path, disk) as here:
        here.fill(3)
        disk.fail("write", ".arrows", errno.EIO, times=1, passing=passing)
        assert here.publish(("t0", b"x" * 5000)).reason == "Input/output error"
        check(here)
        here.fill(1)
        check(here)
    check_verified(here.folder)


def test_a_failed_append_cannot_be_truncated(tmp_path: Path, disk: FaultyDisk) -> None:
    """No group is written before the truncation: a shorter group would leave the end of the longer one."""
    with desk(tmp_path, disk) as here:
        here.fill(3)
        disk.fail("write", ".arrows", FULL, times=1, passing=1)
        disk.fail("truncate", ".arrows", errno.EIO, times=2)
        assert here.publish(("t0", b"\xff" * 5000)).reason == REASON
        assert here.publish(("t0", b"short")).reason == "Input/output error"
        here.fill(2)
        assert [(gap.first, gap.next) for gap in check(here)] == [(3, 5)]
    check_verified(here.folder)


def test_nearly_full(tmp_path: Path, disk: FaultyDisk) -> None:
    """The disk has space for the group, but not for the allocation ahead."""
    with desk(tmp_path, disk) as here:
        for _ in range(5):
            disk.fail("allocate", ".arrows", FULL, times=1)
            here.fill(1)
            disk.heal()
        check(here)
    assert disk.failures == ["allocate 00000000000000000000.arrows"] * 5


def test_full_from_the_beginning(tmp_path: Path, disk: FaultyDisk) -> None:
    with desk(tmp_path, disk) as here:
        disk.fail("write", ".arrows", FULL)
        assert here.publish(("a", b"1")).reason == REASON
        assert list(here.folder.glob("*.arrows")) == []
        disk.heal()
        here.fill(1)
        assert [(gap.first, gap.next) for gap in check(here)] == [(0, 1)]
    check_verified(here.folder)


def test_full_when_a_segment_ends(tmp_path: Path, disk: FaultyDisk) -> None:
    """No segment can be created."""
    with desk(tmp_path, disk, segment_bytes=65_536) as here:
        here.fill(1, size=70_000)
        disk.fail("write", ".arrows", FULL)
        assert [here.publish((topic, b"no")).reason for topic in ("a", "b")] == [REASON, REASON]
        disk.heal()
        here.fill(2)
        assert [(gap.first, gap.next) for gap in check(here)] == [(1, 3)]
        assert [path.stem.lstrip("0") for path in sorted(here.folder.glob("*.arrows"))] == ["", "3"]
    check_verified(here.folder)


def test_a_stop_while_it_is_full(tmp_path: Path, disk: FaultyDisk) -> None:
    """The next start records the gap, and does not reuse its numbers."""
    with desk(tmp_path, disk) as here:
        here.fill(3)
        disk.fail("allocate", ".arrows", FULL)
        assert here.publish(("t0", b"no"), ("new", b"no")).reason
    check_verified(here.folder)
    with desk(tmp_path) as again:
        pass
    with desk(tmp_path) as again:
        assert again.publish(("t0", b"yes"), ("new", b"yes")).first == 5
        again.kept = here.kept + again.kept
        [gap] = check(again)
        assert (gap.first, gap.next) == (3, 5) and REASON in gap.reason
        assert [said.sequence for said in again.kept[3:]] == [2, 1]
    check_verified(again.folder)


def test_a_full_disk_is_logged_once(tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "polycast.log")
    with desk(tmp_path, disk) as here:
        disk.fail("write", ".arrows", FULL)
        for _ in range(3):
            here.publish(("a", b"1"))
        disk.heal()
        here.fill(3)
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == 2
    assert REASON in words[0] and "stored again" in words[1]


def test_offsets_do_not_run_out_while_it_is_full(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live delivery goes on: the state file is overwritten in place on a full disk."""
    reserve_few(monkeypatch, 100)
    with desk(tmp_path, disk) as here:
        here.fill(1)
        disk.fail("write", ".arrows", FULL)
        disk.fail("write", ".tmp", FULL)
        for _ in range(500):
            assert here.log.has_room(1)
            assert here.publish(("a", b"no")).reason
        disk.heal()
        image = here.crash(tmp_path)
        here.fill(1)
        check(here)
    with desk(image) as other:
        assert other.log.next >= 501
        assert other.hub.router.topics.use(b"a").next_sequence >= 500


def test_the_reservation_cannot_be_written(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve_few(monkeypatch, 100)
    with desk(tmp_path, disk) as here:
        here.fill(40)
        disk.fail("sync", "state.json", errno.EIO)
        reasons = [here.publish(("a", b"maybe")).reason for _ in range(30)]
        assert "Input/output error" in reasons
        assert here.log.next < here.log.writer.reserved
        disk.heal()
        here.fill(70)
        check(here)
        assert here.log.next + 50 <= here.log.writer.reserved
    check_verified(here.folder)
