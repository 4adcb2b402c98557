"""Snapshots that a stop left out, in a surge, are written after the next start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from log.log_builder import SEED, LogBuilder
from polycast.log.files.disk import DISK
from polycast.log.files.folder import TOPICS, Segment, remove_segment, segments
from polycast.log.files.snapshot import Snapshot, read_snapshot, write_snapshot
from polycast.log.read.seek import is_removed
from polycast.log.upkeep import snapshots
from polycast.log.upkeep.snapshots import SnapshotWriter

COUNT = 6
ROWS = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    builder = LogBuilder(tmp_path)
    for _ in range(COUNT):
        builder.begin()
        builder.add(ROWS, topics=("a",))
        builder.end()
    write_snapshot(tmp_path, Snapshot(0), SEED, DISK)
    catch_up(tmp_path, Snapshot(0))
    return tmp_path


def catch_up(folder: Path, start: Snapshot, waits: Callable[[Segment], bool] = lambda _: False) -> SnapshotWriter:
    writer = SnapshotWriter(folder, start, lambda snapshot: snapshot, DISK)
    writer.catch_up(SEED, waits)
    return writer


def at_end(folder: Path) -> Snapshot:
    """As of a start, which is behind all segments."""
    last = read_snapshot(folder, segments(folder)[-1].first)
    assert last
    return last._replace(offset=COUNT * ROWS)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".topics", ".batches")}


def leave_out(folder: Path, *numbers: int) -> None:
    for number in numbers:
        segments(folder)[number].path.with_suffix(TOPICS).unlink()


@pytest.mark.parametrize("numbers", [(3,), (1, 2, 3, 4), (2, 4), (5,)])
def test_they_are_as_they_would_have_been(folder: Path, numbers: tuple[int, ...]) -> None:
    expected = contents(folder)
    start = at_end(folder)
    leave_out(folder, *numbers)
    catch_up(folder, start)
    assert contents(folder) == expected


def test_what_was_removed_is_known_again(folder: Path) -> None:
    start = at_end(folder)
    leave_out(folder, 2)
    catch_up(folder, start)
    for segment in segments(folder)[:2]:
        remove_segment(segment)
    assert not is_removed(folder, sequences={"a": 2 * ROWS})
    assert is_removed(folder, sequences={"a": 2 * ROWS - 1})


def test_they_wait_for_the_end_of_a_surge(folder: Path) -> None:
    expected, start = contents(folder), at_end(folder)
    leave_out(folder, 2, 3)
    writer = catch_up(folder, start, lambda segment: segment.first >= 2 * ROWS)
    assert set(expected) - set(contents(folder)) == {f"{3 * ROWS:020}.topics"}
    writer.catch_up(SEED)
    assert contents(folder) == expected


def test_a_complete_folder_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "read_delta", lambda segment: pytest.fail(f"{segment} was read"))
    catch_up(folder, at_end(folder))


def test_without_an_earlier_snapshot_nothing_is_known(folder: Path) -> None:
    start = at_end(folder)
    leave_out(folder, 0, 1)
    before = contents(folder)
    catch_up(folder, start)
    assert contents(folder) == before
