"""A large group is written by another thread, while the writer encodes the next one."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from crash.log_checks import Gap, check_log, read_with_pyarrow, read_with_reader
from kit.wire import GUARD_SECONDS, wait_for
from log.log_builder import findings
from log.log_rig import FaultyDisk, LogRecord, LogRig, open_rig, records_in
from polycast.log.files import hot
from polycast.log.files.disk import NO_FILE
from polycast.log.write.writer import GROUP_BYTES, LARGE_BYTES
from polycast.model import Buffer

FULL = "No space left on device"
LARGE, FULL_GROUP = b"x" * LARGE_BYTES, b"x" * GROUP_BYTES


class SlowDisk(FaultyDisk):
    """Groups wait until `release`."""

    def __init__(self) -> None:
        super().__init__()
        self._free = threading.Event()
        self._free.set()
        self._begun = threading.Event()

    def append(self, fd: int, pieces: Sequence[Buffer], position: int, prefix: int, direct: int = NO_FILE) -> None:
        self._begun.set()
        assert self._free.wait(GUARD_SECONDS)
        super().append(fd, pieces, position, prefix, direct)

    def hold(self) -> None:
        self._begun.clear()
        self._free.clear()

    def wait_begun(self) -> None:
        assert self._begun.wait(GUARD_SECONDS)

    def release(self) -> None:
        self._free.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    monkeypatch.setattr(hot, "ALLOCATE_BYTES", 64)  # so that every group needs room
    monkeypatch.setattr(hot, "ALLOCATE_GROUPS", 0)
    return SlowDisk()


@pytest.fixture
def rig(tmp_path: Path, disk: SlowDisk) -> Iterator[LogRig]:
    with open_rig(tmp_path, disk, segment_bytes=4 * GROUP_BYTES) as opened:
        opened.fill(3)
        yield opened


def put_two(rig: LogRig, disk: SlowDisk, second: bytes, between: Callable[[], object] = lambda: None) -> None:
    """The writer has the second group while the first one is not written yet."""
    both = threading.Event()
    rig.log.writer.reserve(0, lambda _: both.wait(GUARD_SECONDS))
    disk.hold()
    rig.append(("t0", FULL_GROUP), batch_id="one")
    between()
    rig.append(("t0", second), ("t1", b"2"), batch_id="two")
    rig.log.hurry()
    both.set()
    disk.wait_begun()
    wait_for(lambda: not rig.log.writer._queue, "the writer to take the second group")
    disk.release()


def check(rig: LogRig) -> list[Gap]:
    rows, gaps = read_with_pyarrow(rig.folder)
    assert read_with_reader(rig.folder) == rows
    check_log(rows, gaps)
    assert all(found.note for found in findings(rig.folder))
    return gaps


@pytest.mark.parametrize("second", [b"small", LARGE])
@pytest.mark.parametrize(("action", "passing"), [("allocate", 0), ("write", 0), ("write", 1)])
def test_the_next_group_follows_the_one_before_a_lost_one(
    rig: LogRig, disk: SlowDisk, second: bytes, action: str, passing: int
) -> None:
    disk.fail(action, ".arrows", errno.ENOSPC, times=2 if action == "allocate" else 1, passing=passing)
    put_two(rig, disk, second)
    assert [rig.wait_durable(), rig.wait_durable()] == [(3, 4, FULL), (4, 6, "")]
    assert (rig.find("one"), rig.find("two") is None) == (None, False)
    assert [(gap.first, gap.next) for gap in check(rig)] == [(3, 4)]


@pytest.mark.parametrize("second", [b"small", LARGE])
def test_both_groups_are_lost(rig: LogRig, disk: SlowDisk, second: bytes) -> None:
    disk.fail("write", ".arrows", errno.ENOSPC)
    put_two(rig, disk, second)
    assert [rig.wait_durable(), rig.wait_durable()] == [(3, 4, FULL), (4, 6, FULL)]
    disk.heal()
    rig.fill(1)
    assert [(gap.first, gap.next) for gap in check(rig)] == [(3, 6)]


def test_the_next_segment_cannot_be_created(rig: LogRig, disk: SlowDisk) -> None:
    """The second group is lost, the first one is durable."""
    disk.fail("rename", ".arrows", errno.ENOSPC, times=1)
    put_two(rig, disk, LARGE, between=rig.log.writer.roll)
    assert [rig.wait_durable(), rig.wait_durable()] == [(3, 4, ""), (4, 6, FULL)]
    rig.fill(1)
    assert [(gap.first, gap.next) for gap in check(rig)] == [(4, 6)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_segment_ends_on_request_meanwhile(rig: LogRig, disk: SlowDisk, fails: bool) -> None:
    """After the group that is on its way, durable or lost."""
    if fails:
        disk.fail("write", ".arrows", errno.ENOSPC, times=1)
    put_two(rig, disk, LARGE, between=rig.log.writer.roll)
    announced = [rig.wait_durable(), rig.wait_durable()]
    assert [(each.first, each.next) for each in announced] == [(3, 4), (4, 6)]
    assert [each.reason for each in announced] == [FULL if fails else "", ""]
    assert len(list(rig.folder.glob("*.arrows"))) == 2
    assert rig.log.writer.closed == (3 if fails else 4)
    assert [(gap.first, gap.next) for gap in check(rig)] == ([(3, 4)] if fails else [])


def test_the_fsync_fails_meanwhile(rig: LogRig, disk: SlowDisk) -> None:
    disk.fail("sync", ".arrows")
    put_two(rig, disk, LARGE)
    announced = [rig.wait_durable(), rig.wait_durable()]
    assert all(each.reason.startswith("fsync failed") for each in announced)


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_waits_for_the_group_on_its_way(tmp_path: Path, disk: SlowDisk, fails: bool) -> None:
    with open_rig(tmp_path, disk) as rig:
        rig.fill(1)
        if fails:
            disk.fail("write", ".arrows", errno.ENOSPC, times=1)
        disk.hold()
        burst = rig.append(("t0", LARGE))
        rig.log.hurry()
        disk.wait_begun()
        threading.Timer(0, disk.release).start()
    expected = [*rig.durable, *([] if fails else records_in(burst))]
    assert [LogRecord(*row) for row in read_with_pyarrow(rig.folder)[0]] == expected
    with open_rig(tmp_path) as reopened:
        assert reopened.log.next == 2
        reopened.fill(1)
        assert [(gap.first, gap.next) for gap in check(reopened)] == ([(1, 2)] if fails else [])


def test_a_node_writes_nothing_behind_a_lost_group(rig: LogRig, disk: SlowDisk) -> None:
    rig.log.writer._exact = True
    disk.fail("write", ".arrows", errno.ENOSPC, times=1)
    put_two(rig, disk, LARGE)
    assert [rig.wait_durable(), rig.wait_durable()] == [(3, 4, FULL), (4, 6, FULL)]
    assert rig.publish(("a", b"no")).reason == FULL
    assert [row.offset for row in read_with_pyarrow(rig.folder)[0]] == [0, 1, 2]
