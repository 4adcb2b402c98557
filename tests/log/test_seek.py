"""Seeking by time and by sequence, and rows by offset."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

from log.shelf import BEGAN, SECOND, Shelf, flip, time_of, to_rows
from polycast.log.files.disk import DISK
from polycast.log.files.folder import TOPICS, segments
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader
from polycast.log.files.snapshot import Snapshot, read_topics, to_topics, write_snapshot
from polycast.log.read.seek import find_sequence, find_time, first_offset, rows_at
from polycast.log.upkeep.sealing import seal

SEGMENTS = 12


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """Twelve segments with snapshots, the first eight sealed, each with two groups of five rows."""
    shelf = Shelf(tmp_path)
    for number in range(SEGMENTS):
        snapshot(shelf)
        path = shelf.segment(5, 5, topics=["a", "b", f"only.{number}"])
        if number < 8:
            seal(path)
    return shelf


def snapshot(shelf: Shelf, floor: int = 0, without: str = "") -> None:
    last = {row["topic"]: row for row in shelf.rows if row["topic"] != without}
    topics = to_topics((topic, row["sequence"] + 1, row["offset"]) for topic, row in last.items())
    write_snapshot(shelf.folder, Snapshot(shelf.next, topics, floor), 1, DISK)


def test_the_first_offset(shelf: Shelf, tmp_path: Path) -> None:
    assert first_offset(shelf.folder) == 0
    segments(shelf.folder)[0].path.unlink()
    assert first_offset(shelf.folder) == 10
    (tmp_path / "empty").mkdir()
    assert first_offset(tmp_path / "empty") is None


def test_every_time(shelf: Shelf) -> None:
    for offset in range(shelf.next):
        assert find_time(shelf.folder, time_of(offset) / SECOND) == offset
        assert find_time(shelf.folder, time_of(offset) / SECOND - 0.5) == offset
    assert find_time(shelf.folder, 0.0) == 0
    assert find_time(shelf.folder, time_of(shelf.next) / SECOND) == shelf.next


def test_a_time_that_lasts_over_segments(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    with mock.patch("log.shelf.time_of", lambda offset: BEGAN + offset // 7):
        for _ in range(4):
            shelf.segment(3, 2)
    assert find_time(tmp_path, (BEGAN + 1) / SECOND) == 7
    assert find_time(tmp_path, (BEGAN + 2) / SECOND) == 14


def test_a_time_where_a_segment_is_damaged(shelf: Shelf) -> None:
    path = segments(shelf.folder)[5].path
    path.write_bytes(path.read_bytes()[:-100])
    assert find_time(shelf.folder, time_of(45) / SECOND) == 45
    assert find_time(shelf.folder, time_of(55) / SECOND) == 60
    assert find_time(shelf.folder, time_of(65) / SECOND) == 65


def test_an_empty_log(tmp_path: Path) -> None:
    assert find_time(tmp_path, 0.0) == 0
    assert find_sequence(tmp_path, "a", 0) == 0


def test_every_sequence_of_every_topic(shelf: Shelf) -> None:
    for row in shelf.rows:
        assert find_sequence(shelf.folder, row["topic"], row["sequence"]) == row["offset"]
    assert find_sequence(shelf.folder, "a", 1000) == shelf.next
    assert find_sequence(shelf.folder, "nobody", 0) == shelf.next


def test_snapshots_that_are_missing_or_damaged_cost_time_only(shelf: Shelf) -> None:
    paths = sorted(shelf.folder.glob(f"*{TOPICS}"))
    for path in random.Random(1).sample(paths, 4):
        path.unlink()
    for path in random.Random(2).sample(sorted(shelf.folder.glob(f"*{TOPICS}")), 3):
        flip(path, path.stat().st_size - 50)
    for row in shelf.rows[::3]:
        assert find_sequence(shelf.folder, row["topic"], row["sequence"]) == row["offset"]


def test_a_topic_that_snapshots_have_forgotten(shelf: Shelf) -> None:
    for path in shelf.folder.glob(f"*{TOPICS}"):
        path.unlink()
    again = Shelf(shelf.folder)
    for segment in segments(shelf.folder):
        again.rows = shelf.rows[: segment.first]
        again.next = segment.first
        snapshot(again, floor=len(again.rows), without="b")
    for row in shelf.rows:
        assert find_sequence(shelf.folder, row["topic"], row["sequence"]) == row["offset"]


def test_few_segments_are_opened(shelf: Shelf) -> None:
    with mock.patch("polycast.log.read.seek.read_topics", wraps=read_topics) as asked:
        find_sequence(shelf.folder, "a", 30)
    assert asked.call_count <= 4


# -- rows by their offsets -------------------------------------------------------------------------------


def test_rows_at_some_offsets(shelf: Shelf) -> None:
    choice = random.Random(3)
    for count in (0, 1, 7, 60):
        offsets = choice.sample(range(shelf.next), count)
        found = to_rows(rows_at(shelf.folder, offsets))
        assert found == [shelf.rows[offset] for offset in sorted(offsets)]


def test_missing_rows_are_left_out(shelf: Shelf) -> None:
    assert [row["offset"] for row in to_rows(rows_at(shelf.folder, [3, 3, 119, 120, 5000]))] == [3, 119]
    segments(shelf.folder)[0].path.unlink()
    assert [row["offset"] for row in to_rows(rows_at(shelf.folder, [3, 11]))] == [11]


def test_rows_in_some_columns(shelf: Shelf) -> None:
    found = to_rows(rows_at(shelf.folder, [1, 50, 99], ["topic"]))
    assert found == [{"topic": shelf.rows[offset]["topic"]} for offset in (1, 50, 99)]


def test_each_segment_is_opened_once(shelf: Shelf) -> None:
    with (
        mock.patch("polycast.log.read.segment_sources.SealedReader", wraps=SealedReader) as sealed,
        mock.patch("polycast.log.read.segment_sources.HotReader", wraps=HotReader) as hot,
    ):
        list(rows_at(shelf.folder, [0, 1, 9, 55, 56, 81, 82, 89, 111]))
    assert [call.args[0].stem[-3:] for call in sealed.call_args_list] == ["000", "050"]
    assert [call.args[0].stem[-3:] for call in hot.call_args_list] == ["080", "110"]
