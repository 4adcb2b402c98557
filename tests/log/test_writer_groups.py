"""Group commit: which messages form a group, when it is announced, and in which segment it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from crash.log_checks import check_log, read_with_pyarrow
from kit.wire import GUARD_SECONDS, wait_for
from log.log_rig import NOW, OWNER, LogRecord, LogRig, open_rig, path_of, records_in
from polycast.log.files.disk import Disk
from polycast.log.files.format import BatchEntry, GroupHeader
from polycast.log.files.hot import HotReader
from polycast.log.times import to_micros
from polycast.log.write.writer import Writer


class SlowDisk(Disk):
    """The fsyncs of hot segments wait until `release`."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()
        self.syncs = 0

    def sync(self, fd: int) -> None:
        if path_of(fd).endswith(".arrows"):
            self.syncs += 1
            self.begun.set()
            assert self.free.wait(GUARD_SECONDS)
        super().sync(fd)

    def hold(self) -> None:
        self.begun.clear()
        self.free.clear()


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def rig(tmp_path: Path, disk: SlowDisk) -> Iterator[LogRig]:
    with open_rig(tmp_path, disk) as opened:
        try:
            yield opened
        finally:
            disk.free.set()


def headers(folder: Path) -> list[GroupHeader]:
    found: list[GroupHeader] = []
    for path in sorted(folder.glob("*.arrows")):
        reader = HotReader(path)
        found += [group.header for group in reader.groups()]
        reader.close()
    return found


def test_nothing_is_announced_before_fsync(rig: LogRig, disk: SlowDisk) -> None:
    rig.fill(1)
    disk.hold()
    rig.append(("a", b"1"))
    assert disk.begun.wait(GUARD_SECONDS)
    wait_for(lambda: len(headers(rig.folder)) == 2, "the group")  # it is written
    assert rig.is_silent()
    disk.free.set()
    assert rig.wait_durable() == (1, 2, "")


def test_groups_written_during_an_fsync_share_the_next_one(rig: LogRig, disk: SlowDisk) -> None:
    rig.fill(1)
    disk.hold()
    rig.append(("a", b"1"))
    assert disk.begun.wait(GUARD_SECONDS)
    before = disk.syncs
    for number in range(100):
        rig.append(("a", b"%d" % number))
    wait_for(lambda: headers(rig.folder)[-1].next == 102, "all groups")
    disk.free.set()
    announced = [rig.wait_durable()]
    while announced[-1].next < 102:
        announced.append(rig.wait_durable())
    assert disk.syncs <= before + 2
    assert [each.first for each in announced[1:]] == [
        each.next for each in announced[:-1]
    ]  # in their order, without a hole
    assert len(headers(rig.folder)) < 50


@pytest.mark.parametrize("sync", ["never", "interval"])
def test_weaker_sync_settings_announce_earlier(tmp_path: Path, disk: SlowDisk, sync: str) -> None:
    """Written messages survive as long as the machine runs."""
    with open_rig(tmp_path, disk, sync=sync, sync_seconds=3600.0) as rig:
        rig.fill(1)
        before = disk.syncs
        rig.fill(20)
        assert disk.syncs - before < 2
        image = rig.crash(tmp_path)
    with open_rig(image) as reopened:
        rows, _ = read_with_pyarrow(reopened.folder)
        assert [LogRecord(*row) for row in rows] == rig.durable


def test_an_interval_passes(tmp_path: Path, disk: SlowDisk) -> None:
    with open_rig(tmp_path, disk, sync="interval", sync_seconds=0.001) as rig:
        rig.fill(1)
        wait_for(lambda: disk.syncs, "a sync though nothing more comes")


def test_a_batch_lies_in_one_group(rig: LogRig, disk: SlowDisk) -> None:
    disk.hold()
    rig.append(("a", b"1"))
    for number in range(20):
        rig.append(("a", b"x"), ("b", b"y"), ("a", b"z"), batch_id=f"id {number}")
    rig.append(("a", b"1"))
    disk.free.set()
    while rig.wait_durable().next < 62:
        pass
    found = headers(rig.folder)
    durable = [batch for header in found for batch in header.batches]
    assert durable == [
        BatchEntry(f"id {number}", 1 + 3 * number, 3, OWNER, to_micros(NOW)) for number in range(20)
    ]
    for header in found:
        assert all(
            header.first <= each.first and each.first + each.count <= header.next for each in header.batches
        )


def test_the_chain_goes_on_across_segments_and_starts(tmp_path: Path) -> None:
    for _ in range(3):
        with open_rig(tmp_path, segment_bytes=65_536) as rig:
            rig.fill(4, size=40_000)
    found = headers(rig.folder)
    assert len(list(rig.folder.glob("*.arrows"))) == 6
    assert [header.previous for header in found] == ["0" * 32, *(header.checksum for header in found[:-1])]


# -- segments --------------------------------------------------------------------------------------------


def firsts(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.arrows"))


def test_a_segment_ends_when_it_is_full(tmp_path: Path) -> None:
    with open_rig(tmp_path, segment_bytes=100_000) as rig:
        rig.fill(10, size=40_000)
        assert firsts(rig.folder) == [0, 3, 6, 9]
        wait_for(lambda: rig.log.writer.closed == 9, "the end of the third")
        sizes = [path.stat().st_size for path in sorted(rig.folder.glob("*.arrows"))]
        assert all(120_000 < size < 130_000 for size in sizes[:3])  # what was allocated is given back


def test_a_segment_ends_when_it_is_old(tmp_path: Path) -> None:
    with open_rig(tmp_path, segment_seconds=0.001) as rig:
        while len(firsts(rig.folder)) < 3:
            rig.fill(1)


def test_a_segment_ends_on_request(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        rig.fill(2)
        rig.log.writer.roll()
        wait_for(lambda: rig.log.writer.closed == 2, "the end")
        rig.log.writer.roll()  # there is none
        rig.fill(1)
        assert firsts(rig.folder) == [0, 2]


def test_a_new_segment_never_has_the_size_of_the_last_one(tmp_path: Path) -> None:
    """Retention, in another thread, would remove a segment too many."""
    sizes: list[int] = []

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is not Writer._provide_segment.__code__:
            return None
        sizes.append(opened.log.writer.open_bytes)
        return trace

    threading.settrace(trace)
    try:
        with open_rig(tmp_path, segment_bytes=65_536) as opened:
            opened.fill(2, size=70_000)
    finally:
        threading.settrace(None)
    ended = sizes.index(0, sizes.index(max(sizes)))
    assert max(sizes[ended:]) < 4096


def test_the_next_segment_waits_until_the_last_one_is_durable(tmp_path: Path, disk: SlowDisk) -> None:
    """After a power failure no later group may exist without the earlier ones."""
    with open_rig(tmp_path, disk, segment_bytes=65_536, sync="never") as rig:
        rig.fill(1, size=70_000)
        disk.hold()
        rig.append(("a", b"1"))
        assert disk.begun.wait(GUARD_SECONDS)
        assert firsts(rig.folder) == [0]
        disk.free.set()
        assert rig.wait_durable() == (1, 2, "")
        assert firsts(rig.folder) == [0, 1]


def test_close_waits_until_everything_is_durable(tmp_path: Path) -> None:
    rig = LogRig(tmp_path)
    bursts = [rig.append((f"t{number % 3}", b"%d" % number)) for number in range(50)]
    record = [line for burst in bursts for line in records_in(burst)]
    rig.close()
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == record
    check_log(rows, gaps)
    while rig.wait_durable().next < 50:
        pass
