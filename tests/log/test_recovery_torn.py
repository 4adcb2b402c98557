"""A broker dies during a write: complete groups stay, an unfinished one goes to the quarantine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crash.log_checks import check_log, read_with_pyarrow
from log.log_builder import every_byte, findings
from log.log_rig import HASTY, RESERVE, LogRecord, LogRig, open_rig, reserve_few
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.repair.recovery import recover

GROUPS = 3
MESSAGES = [("a", b"1"), ("b", b"22"), ("a", b"333")]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)


@pytest.fixture
def image(tmp_path: Path) -> tuple[Path, list[LogRecord]]:
    """A data folder after a kill, with some groups of three messages."""
    data = tmp_path / "data"
    with open_rig(data) as rig:
        for number in range(GROUPS):
            rig.publish(*MESSAGES, batch_id=f"batch {number}")
        image = rig.crash(data.parent)
    path = hot_of(image)
    path.write_bytes(path.read_bytes()[: edges_of(path)[-1] + 64])  # more of what was allocated only takes time
    return image, rig.durable


def hot_of(data: Path) -> Path:
    [path] = (data / "log").glob("*.arrows")
    return path


def edges_of(path: Path) -> list[int]:
    """Where groups begin, and where the last one ends."""
    reader = HotReader(path)
    positions = [group.position for group in reader.groups()]
    reader.close()
    return [*positions, reader.position]


def check_recovered(rig: LogRig, durable: list[LogRecord]) -> None:
    """The log continues behind all offsets that may have been used, and records the gap."""
    assert rig.log.next == RESERVE
    known = [n for n in range(GROUPS) if rig.find(f"batch {n}", 0)]
    assert known == list(range(len(durable) // len(MESSAGES)))
    rig.publish(("a", b"next"), ("b", b"next"), ("new", b"next"))
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable + rig.durable
    check_log(rows, gaps)
    assert [(gap.first, gap.next, gap.reason) for gap in gaps] == [(len(durable), RESERVE, "unclean stop")]
    assert (
        rig.durable[0].sequence >= 2 * GROUPS and rig.durable[1].sequence >= GROUPS and rig.durable[2].sequence > 0
    )


def check_verified(folder: Path) -> None:
    assert findings(folder) == []


def test_killed_between_two_groups(image: tuple[Path, list[LogRecord]]) -> None:
    data, durable = image
    with open_rig(data) as rig:
        check_recovered(rig, durable)
    check_verified(rig.folder)
    assert not (rig.folder / "quarantine").exists()


@pytest.mark.slow
def test_cut_at_every_byte(image: tuple[Path, list[LogRecord]], tmp_path: Path) -> None:
    data, durable = image
    whole = hot_of(data).read_bytes()
    edges = edges_of(hot_of(data))
    for size in (*range(edges[1] - 10, edges[-2], 29), *every_byte(edges[-2], edges[-1] + 1), edges[-1]):
        copy = tmp_path / "copy"
        shutil.copytree(data, copy)
        hot_of(copy).write_bytes(whole[:size])
        left = durable[: len(MESSAGES) * sum(edge <= size for edge in edges[1:])]
        found = recover(copy / "log", HASTY)
        assert found.state.next == RESERVE and found.gap == Gap(len(left), RESERVE, "unclean stop")
        assert sorted(found.snapshot.batches["first"].to_pylist()) == [record.offset for record in left[::3]]
        rows, _ = read_with_pyarrow(copy / "log")
        assert [LogRecord(*row) for row in rows] == left
        check_tail(copy / "log", whole[max(edge for edge in edges if edge <= size) : size])
        shutil.rmtree(copy)


@pytest.mark.parametrize("missing", [1, 7, 8, 9, 100, 500, 900])
def test_cut_and_used_again(image: tuple[Path, list[LogRecord]], missing: int) -> None:
    data, durable = image
    path = hot_of(data)
    path.write_bytes(path.read_bytes()[: edges_of(path)[-1] - missing])
    with open_rig(data) as rig:
        check_recovered(rig, durable[: -len(MESSAGES)])
    check_verified(rig.folder)


def test_the_rest_of_the_last_group_is_zeros(image: tuple[Path, list[LogRecord]], tmp_path: Path) -> None:
    """The last group is allocated and partly written: any part may be missing."""
    data, durable = image
    whole = hot_of(data).read_bytes()
    *_, begin, end = edges_of(hot_of(data))
    for hole in range(begin, end, 11):
        copy = tmp_path / "copy"
        shutil.copytree(data, copy)
        hot_of(copy).write_bytes(whole[:hole] + bytes(8) + whole[hole + 8 :])
        torn = any(whole[hole : min(hole + 8, end)])
        with open_rig(copy, HASTY) as rig:
            check_recovered(rig, durable[:-3] if torn else durable)
        check_verified(rig.folder)
        shutil.rmtree(copy)


def check_tail(folder: Path, tail: bytes) -> None:
    found = [path.read_bytes() for path in (folder / "quarantine").glob("*.tail")]
    assert found == ([tail.rstrip(b"\0")] if tail.strip(b"\0") else [])


@pytest.mark.parametrize("size", [0, 1, 8, 100, 583])
def test_killed_when_a_segment_began(image: tuple[Path, list[LogRecord]], size: int) -> None:
    """An incomplete head, without messages."""
    data, durable = image
    head = hot_of(data).read_bytes()[: edges_of(hot_of(data))[0]]
    (data / "log" / f"{9:020}.arrows").write_bytes(head[:size])
    with open_rig(data) as rig:
        check_recovered(rig, durable)
    check_verified(rig.folder)


def test_killed_when_a_segment_had_begun(image: tuple[Path, list[LogRecord]]) -> None:
    """An empty segment; the chain continues from the one before."""
    data, durable = image
    head = hot_of(data).read_bytes()[: edges_of(hot_of(data))[0]]
    (data / "log" / f"{9:020}.arrows").write_bytes(head)
    with open_rig(data) as rig:
        check_recovered(rig, durable)
    check_verified(rig.folder)


def test_killed_before_the_first_message(tmp_path: Path) -> None:
    with open_rig(tmp_path / "data") as rig:
        image = rig.crash(tmp_path)
    with open_rig(image) as copy:
        assert copy.log.next == RESERVE
        copy.publish(("a", b"1"))
        rows, gaps = read_with_pyarrow(copy.folder)
        check_log(rows, gaps)
    check_verified(copy.folder)
