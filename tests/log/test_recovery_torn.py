"""A broker dies during a write: complete groups stay, an unfinished one goes to the quarantine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crash.evidence import check_log, read_with_pyarrow
from log.desk import HASTY, RESERVE, Desk, Said, desk, reserve_few
from log.shelf import every_byte
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.repair.recovery import recover
from polycast.log.repair.verify import LogFinding, verify

GROUPS = 3
SAID = [("a", b"1"), ("b", b"22"), ("a", b"333")]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)


@pytest.fixture
def image(tmp_path: Path) -> tuple[Path, list[Said]]:
    """A data folder after a kill, with some groups of three messages."""
    data = tmp_path / "data"
    with desk(data) as here:
        for number in range(GROUPS):
            here.publish(*SAID, batch_id=f"batch {number}")
        image = here.crash(data.parent)
    path = hot_of(image)
    path.write_bytes(path.read_bytes()[: edges_of(path)[-1] + 64])  # more of what was allocated only takes time
    return image, here.kept


def hot_of(data: Path) -> Path:
    [path] = (data / "log").glob("*.arrows")
    return path


def edges_of(path: Path) -> list[int]:
    """Where groups begin, and where the last one ends."""
    reader = HotReader(path)
    positions = [group.position for group in reader.groups()]
    reader.close()
    return [*positions, reader.position]


def check_recovered(here: Desk, kept: list[Said]) -> None:
    """The log continues behind all offsets that may have been used, and records the gap."""
    assert here.log.next == RESERVE
    known = [n for n in range(GROUPS) if here.find(f"batch {n}", 0)]
    assert known == list(range(len(kept) // len(SAID)))
    here.publish(("a", b"next"), ("b", b"next"), ("new", b"next"))
    rows, gaps = read_with_pyarrow(here.folder)
    assert [Said(*row) for row in rows] == kept + here.kept
    check_log(rows, gaps)
    assert [(gap.first, gap.next, gap.reason) for gap in gaps] == [(len(kept), RESERVE, "unclean stop")]
    assert here.kept[0].sequence >= 2 * GROUPS and here.kept[1].sequence >= GROUPS and here.kept[2].sequence > 0


def check_verified(folder: Path) -> None:
    assert [found for found in verify(folder) if isinstance(found, LogFinding)] == []


def test_killed_between_two_groups(image: tuple[Path, list[Said]]) -> None:
    data, kept = image
    with desk(data) as here:
        check_recovered(here, kept)
    check_verified(here.folder)
    assert not (here.folder / "quarantine").exists()


@pytest.mark.slow
def test_cut_at_every_byte(image: tuple[Path, list[Said]], tmp_path: Path) -> None:
    data, kept = image
    whole = hot_of(data).read_bytes()
    edges = edges_of(hot_of(data))
    for size in (*range(edges[1] - 10, edges[-2], 29), *every_byte(edges[-2], edges[-1] + 1), edges[-1]):
        again = tmp_path / "again"
        shutil.copytree(data, again)
        hot_of(again).write_bytes(whole[:size])
        left = kept[: len(SAID) * sum(edge <= size for edge in edges[1:])]
        found = recover(again / "log", HASTY)
        assert found.state.next == RESERVE and found.gap == Gap(len(left), RESERVE, "unclean stop")
        assert sorted(found.snapshot.batches["first"].to_pylist()) == [said.offset for said in left[::3]]
        rows, _ = read_with_pyarrow(again / "log")
        assert [Said(*row) for row in rows] == left
        check_tail(again / "log", whole[max(edge for edge in edges if edge <= size) : size])
        shutil.rmtree(again)


@pytest.mark.parametrize("missing", [1, 7, 8, 9, 100, 500, 900])
def test_cut_and_used_again(image: tuple[Path, list[Said]], missing: int) -> None:
    data, kept = image
    path = hot_of(data)
    path.write_bytes(path.read_bytes()[: edges_of(path)[-1] - missing])
    with desk(data) as here:
        check_recovered(here, kept[: -len(SAID)])
    check_verified(here.folder)


def test_the_rest_of_the_last_group_is_zeros(image: tuple[Path, list[Said]], tmp_path: Path) -> None:
    """The last group is allocated and partly written: any part may be missing."""
    data, kept = image
    whole = hot_of(data).read_bytes()
    *_, begin, end = edges_of(hot_of(data))
    for hole in range(begin, end, 11):
        again = tmp_path / "again"
        shutil.copytree(data, again)
        hot_of(again).write_bytes(whole[:hole] + bytes(8) + whole[hole + 8 :])
        torn = any(whole[hole : min(hole + 8, end)])
        with desk(again, HASTY) as here:
            check_recovered(here, kept[:-3] if torn else kept)
        check_verified(here.folder)
        shutil.rmtree(again)


def check_tail(folder: Path, tail: bytes) -> None:
    found = [path.read_bytes() for path in (folder / "quarantine").glob("*.tail")]
    assert found == ([tail.rstrip(b"\0")] if tail.strip(b"\0") else [])


@pytest.mark.parametrize("size", [0, 1, 8, 100, 583])
def test_killed_when_a_segment_began(image: tuple[Path, list[Said]], size: int) -> None:
    """An incomplete head, without messages."""
    data, kept = image
    head = hot_of(data).read_bytes()[: edges_of(hot_of(data))[0]]
    (data / "log" / f"{9:020}.arrows").write_bytes(head[:size])
    with desk(data) as here:
        check_recovered(here, kept)
    check_verified(here.folder)


def test_killed_when_a_segment_had_begun(image: tuple[Path, list[Said]]) -> None:
    """An empty segment; the chain continues from the one before."""
    data, kept = image
    head = hot_of(data).read_bytes()[: edges_of(hot_of(data))[0]]
    (data / "log" / f"{9:020}.arrows").write_bytes(head)
    with desk(data) as here:
        check_recovered(here, kept)
    check_verified(here.folder)


def test_killed_before_the_first_message(tmp_path: Path) -> None:
    with desk(tmp_path / "data") as here:
        image = here.crash(tmp_path)
    with desk(image) as again:
        assert again.log.next == RESERVE
        again.publish(("a", b"1"))
        rows, gaps = read_with_pyarrow(again.folder)
        check_log(rows, gaps)
    check_verified(again.folder)
