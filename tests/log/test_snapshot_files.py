"""Snapshots: written atomically, and used only if their checksums are valid."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

from crash.log_checks import check_log, read_with_pyarrow
from kit.wire import wait_for
from log.log_builder import every_byte, findings, flip
from log.log_rig import HASTY, NOW, FaultyDisk, LogRecord, open_rig, reserve_few
from polycast.errors import StartError
from polycast.log.batch_ids import BatchRow
from polycast.log.files.disk import DISK
from polycast.log.files.format import read_layout
from polycast.log.files.snapshot import (
    Snapshot,
    advance,
    read_snapshot,
    to_batches,
    to_topics,
    trim_topics,
    write_snapshot,
)
from polycast.log.read.snapshot_delta import NO_ROWS

SEED = 7
TOPICS = [("a", 5, 17), ("", 1, 2), ("höhe", 2**40, 2**41)]
BATCHES = [BatchRow("one", 0, 3, 1_000_000, "alice"), BatchRow("two", 3, 1, 2_000_000, "")]
SNAPSHOT = Snapshot(18, to_topics(TOPICS), 9, to_batches(BATCHES))


def same(one: Snapshot | None, other: Snapshot) -> bool:
    return (
        one is not None
        and (one.offset, one.floor) == (other.offset, other.floor)
        and one.topics.equals(other.topics)
        and one.batches.equals(other.batches)
    )


@pytest.mark.parametrize("snapshot", [SNAPSHOT, Snapshot(0), Snapshot(3, floor=4)])
def test_there_and_back(tmp_path: Path, snapshot: Snapshot) -> None:
    write_snapshot(tmp_path, snapshot, SEED, DISK)
    assert same(read_snapshot(tmp_path, snapshot.offset), snapshot)
    assert read_snapshot(tmp_path, snapshot.offset + 1) is None
    for path in tmp_path.iterdir():  # anybody can read them
        assert pa.ipc.open_stream(path).read_all().num_rows >= 0


@pytest.mark.parametrize("suffix", [".topics", ".batches"])
def test_a_damaged_snapshot_is_not_used(tmp_path: Path, suffix: str) -> None:
    """A damaged snapshot is not used, or has the same content."""
    write_snapshot(tmp_path, SNAPSHOT, SEED, DISK)
    [path] = tmp_path.glob(f"*{suffix}")
    whole = path.read_bytes()
    harmless = 0
    positions = every_byte(0, len(whole))
    for position in positions:
        flip(path, position, 1 << position % 8)
        found = read_snapshot(tmp_path, SNAPSHOT.offset)
        assert found is None or same(found, SNAPSHOT), position
        harmless += found is not None
        path.write_bytes(whole)
    assert harmless < len(positions) / 4  # padding of the schema
    for size in every_byte(0, len(whole)):
        path.write_bytes(whole[:size])
        assert read_snapshot(tmp_path, SNAPSHOT.offset) is None


@pytest.mark.parametrize("action", ["write", "sync", "rename"])
@pytest.mark.parametrize("name", [".topics", ".batches"])
def test_a_snapshot_that_cannot_be_written(tmp_path: Path, action: str, name: str) -> None:
    disk = FaultyDisk()
    write_snapshot(tmp_path, SNAPSHOT, SEED, disk)
    disk.fail(action, name)
    with pytest.raises(OSError, match="Input/output"):
        write_snapshot(tmp_path, SNAPSHOT._replace(floor=100), SEED, disk)
    with pytest.raises(OSError, match="Input/output"):
        write_snapshot(tmp_path, SNAPSHOT._replace(offset=30), SEED, disk)
    assert same(read_snapshot(tmp_path, 18), SNAPSHOT)
    assert read_snapshot(tmp_path, 30) is None
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(f"{30:020}.topics"))  # where those are, the batch ids are as well


# -- from one to the next --------------------------------------------------------------------------------


def test_lost_messages_may_be_of_any_topic() -> None:
    rows = pa.table(
        {"offset": [18, 19, 20], "topic": ["a", "new", "a"], "sequence": [5, 9, 6]}, schema=NO_ROWS.schema
    )
    found = advance(SNAPSHOT, 30, rows, to_batches([BatchRow("three", 18, 2, 3_000_000, "alice")]), ahead=9)
    reached = zip(found.topics["topic"].to_pylist(), found.topics["next_sequence"].to_pylist(), strict=True)
    assert dict(reached) == {"a": 16, "": 10, "höhe": 2**40 + 9, "new": 19}
    assert (found.offset, found.floor) == (30, 18)
    assert found.batches["batch_id"].to_pylist() == ["one", "two", "three"]


def test_forgotten_topics_raise_the_floor() -> None:
    found = trim_topics(SNAPSHOT, 2)
    assert sorted(found.topics["topic"].to_pylist()) == ["a", "höhe"]  # `` was used longest ago
    assert found.floor == 9
    assert trim_topics(SNAPSHOT._replace(floor=0), 1).floor == 5
    assert found.batches.equals(SNAPSHOT.batches)


# -- in use ----------------------------------------------------------------------------------------------


def some_segments(data: Path, count: int = 4) -> tuple[Path, list[LogRecord]]:
    """Killed: as many segments, each with its snapshot."""
    with open_rig(data / "first", segment_bytes=65_536) as rig:
        for number in range(count):
            rig.publish((f"only {number}", b"x" * 70_000), ("all", b"y"), batch_id=f"batch {number}")
        wait_for(lambda: len(list(rig.folder.glob("*.topics"))) == count, "snapshots")
        return rig.crash(data), rig.durable


@pytest.mark.parametrize("damaged", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("how", ["gone", "damaged", "half gone"])
def test_older_snapshots_work_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    reserve_few(monkeypatch)
    data, durable = some_segments(tmp_path)
    for path in sorted((data / "log").glob("*.topics"), reverse=True)[:damaged]:
        spoil(path, how)
    with open_rig(data, HASTY) as rig:
        for number in range(4):
            assert rig.find(f"batch {number}", NOW)
        rig.publish(*[(record.topic, b"again") for record in durable])
        last = {record.topic: record.sequence for record in durable}
        assert all(record.sequence > last[record.topic] for record in rig.durable[:4])
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable + rig.durable
    check_log(rows, gaps)
    assert ("an older one takes longer" in caplog.text) == (damaged > 0 and how != "gone")


def spoil(path: Path, how: str) -> None:
    if how == "damaged":
        flip(path, path.stat().st_size - 30)
    else:
        path.with_suffix(".batches").unlink()
    if how == "gone":
        path.unlink()


def test_without_snapshots_and_without_the_first_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics of removed segments continue above every sequence they can have had."""
    reserve_few(monkeypatch)
    data, _ = some_segments(tmp_path)
    for path in (data / "log").glob("*.topics"):
        spoil(path, "gone")
    (data / "log" / f"{0:020}.arrows").unlink()
    with open_rig(data) as rig:
        rig.publish(("only 0", b"again"), ("all", b"again"))
        assert rig.durable[0].sequence > 0 and rig.durable[1].sequence > 3


def test_a_snapshot_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reserve_few(monkeypatch)
    disk = FaultyDisk()
    with open_rig(tmp_path / "data", disk, segment_bytes=65_536) as rig:
        disk.fail("write", ".topics.tmp", errno.ENOSPC)
        for _ in range(3):
            rig.publish(("a", b"x" * 70_000), batch_id="some")
        wait_for(lambda: disk.failures, "the snapshot")
        assert [path.stem for path in rig.folder.glob("*.topics")] == [f"{0:020}"]
        image = rig.crash(tmp_path)
    assert "No space left on device" in caplog.text
    with open_rig(image) as reopened:
        reopened.publish(("a", b"next"))
        assert reopened.durable[0].sequence > 2
        assert reopened.find("some", NOW)


def test_the_last_snapshot_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Then the next start reads the end of the log."""
    disk = FaultyDisk()
    with open_rig(tmp_path, disk) as rig:
        rig.fill(3)
        disk.fail("sync", ".topics.tmp", errno.EIO)
    assert "the next start reads the end of the log: " in caplog.text
    with open_rig(tmp_path) as reopened:
        assert reopened.log.next > 3
        reopened.fill(3)
    rows, gaps = read_with_pyarrow(reopened.folder)
    assert [LogRecord(*row) for row in rows] == rig.durable + reopened.durable
    check_log(rows, gaps)


@pytest.mark.parametrize("name", [".topics", ".batches", "state.json"])
@pytest.mark.parametrize("action", ["write", "sync", "rename"])
def test_a_start_fails_if_it_cannot_write(tmp_path: Path, action: str, name: str) -> None:
    """A clear error, unchanged files, and an unlocked folder."""
    with open_rig(tmp_path) as rig:
        rig.fill(3)
    disk = FaultyDisk()
    disk.fail(action, name)
    with pytest.raises(StartError, match=r"cannot write a log in .*: Input/output error"):
        open_rig(tmp_path, disk).__enter__()
    with open_rig(tmp_path) as reopened:
        assert reopened.log.next == 3
    assert findings(rig.folder) == []


def test_no_bit_of_the_head_changes_how_rows_are_read(tmp_path: Path) -> None:
    """The checksum of a group does not cover the schema before it, such as its byte order."""
    write_snapshot(tmp_path, SNAPSHOT, SEED, DISK)
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        layout = read_layout(data)
        for position in range(len(layout.head)):
            for bit in range(8):
                path.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
                found = read_snapshot(tmp_path, SNAPSHOT.offset)
                assert found is None or same(found, SNAPSHOT)
        path.write_bytes(data)
