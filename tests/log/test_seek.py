"""Seeking by time and by sequence, and rows by offset."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

from log.log_builder import BEGAN, SECOND, LogBuilder, flip, time_of, to_rows
from polycast.log.files.disk import DISK
from polycast.log.files.folder import TOPICS, segments
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader
from polycast.log.files.snapshot import Snapshot, read_topics, to_topics, write_snapshot
from polycast.log.read.seek import find_sequence, find_time, first_offset, rows_at
from polycast.log.upkeep.sealing import seal

SEGMENTS = 12


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    """Twelve segments with snapshots, the first eight sealed, each with two groups of five rows."""
    builder = LogBuilder(tmp_path)
    for number in range(SEGMENTS):
        snapshot(builder)
        path = builder.segment(5, 5, topics=["a", "b", f"only.{number}"])
        if number < 8:
            seal(path)
    return builder


def snapshot(builder: LogBuilder, floor: int = 0, without: str = "") -> None:
    last = {row["topic"]: row for row in builder.rows if row["topic"] != without}
    topics = to_topics((topic, row["sequence"] + 1, row["offset"]) for topic, row in last.items())
    write_snapshot(builder.folder, Snapshot(builder.next, topics, floor), 1, DISK)


def test_the_first_offset(builder: LogBuilder, tmp_path: Path) -> None:
    assert first_offset(builder.folder) == 0
    segments(builder.folder)[0].path.unlink()
    assert first_offset(builder.folder) == 10
    (tmp_path / "empty").mkdir()
    assert first_offset(tmp_path / "empty") is None


def test_every_time(builder: LogBuilder) -> None:
    for offset in range(builder.next):
        assert find_time(builder.folder, time_of(offset) / SECOND) == offset
        assert find_time(builder.folder, time_of(offset) / SECOND - 0.5) == offset
    assert find_time(builder.folder, 0.0) == 0
    assert find_time(builder.folder, time_of(builder.next) / SECOND) == builder.next


def test_a_time_that_lasts_over_segments(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    with mock.patch("log.log_builder.time_of", lambda offset: BEGAN + offset // 7):
        for _ in range(4):
            builder.segment(3, 2)
    assert find_time(tmp_path, (BEGAN + 1) / SECOND) == 7
    assert find_time(tmp_path, (BEGAN + 2) / SECOND) == 14


def test_a_time_where_a_segment_is_damaged(builder: LogBuilder) -> None:
    path = segments(builder.folder)[5].path
    path.write_bytes(path.read_bytes()[:-100])
    assert find_time(builder.folder, time_of(45) / SECOND) == 45
    assert find_time(builder.folder, time_of(55) / SECOND) == 50, "one of the damaged messages may be the first"
    assert find_time(builder.folder, time_of(65) / SECOND) == 65


def test_an_empty_log(tmp_path: Path) -> None:
    assert find_time(tmp_path, 0.0) == 0
    assert find_sequence(tmp_path, "a", 0) == 0


def test_every_sequence_of_every_topic(builder: LogBuilder) -> None:
    for row in builder.rows:
        assert find_sequence(builder.folder, row["topic"], row["sequence"]) == row["offset"]
    assert find_sequence(builder.folder, "a", 1000) == builder.next
    assert find_sequence(builder.folder, "nobody", 0) == builder.next


def test_snapshots_that_are_missing_or_damaged_cost_time_only(builder: LogBuilder) -> None:
    paths = sorted(builder.folder.glob(f"*{TOPICS}"))
    for path in random.Random(1).sample(paths, 4):
        path.unlink()
    for path in random.Random(2).sample(sorted(builder.folder.glob(f"*{TOPICS}")), 3):
        flip(path, path.stat().st_size - 50)
    for row in builder.rows[::3]:
        assert find_sequence(builder.folder, row["topic"], row["sequence"]) == row["offset"]


def test_a_topic_that_snapshots_have_forgotten(builder: LogBuilder) -> None:
    for path in builder.folder.glob(f"*{TOPICS}"):
        path.unlink()
    again = LogBuilder(builder.folder)
    for segment in segments(builder.folder):
        again.rows = builder.rows[: segment.first]
        again.next = segment.first
        snapshot(again, floor=len(again.rows), without="b")
    for row in builder.rows:
        assert find_sequence(builder.folder, row["topic"], row["sequence"]) == row["offset"]


def test_few_segments_are_opened(builder: LogBuilder) -> None:
    with mock.patch("polycast.log.read.seek.read_topics", wraps=read_topics) as asked:
        find_sequence(builder.folder, "a", 30)
    assert asked.call_count <= 4


# -- rows by their offsets -------------------------------------------------------------------------------


def test_rows_at_some_offsets(builder: LogBuilder) -> None:
    choice = random.Random(3)
    for count in (0, 1, 7, 60):
        offsets = choice.sample(range(builder.next), count)
        found = to_rows(rows_at(builder.folder, offsets))
        assert found == [builder.rows[offset] for offset in sorted(offsets)]


def test_missing_rows_are_left_out(builder: LogBuilder) -> None:
    assert [row["offset"] for row in to_rows(rows_at(builder.folder, [3, 3, 119, 120, 5000]))] == [3, 119]
    segments(builder.folder)[0].path.unlink()
    assert [row["offset"] for row in to_rows(rows_at(builder.folder, [3, 11]))] == [11]


def test_rows_in_some_columns(builder: LogBuilder) -> None:
    found = to_rows(rows_at(builder.folder, [1, 50, 99], ["topic"]))
    assert found == [{"topic": builder.rows[offset]["topic"]} for offset in (1, 50, 99)]


def test_each_segment_is_opened_once(builder: LogBuilder) -> None:
    with (
        mock.patch("polycast.log.read.segment_sources.SealedReader", wraps=SealedReader) as sealed,
        mock.patch("polycast.log.read.segment_sources.HotReader", wraps=HotReader) as hot,
    ):
        list(rows_at(builder.folder, [0, 1, 9, 55, 56, 81, 82, 89, 111]))
    assert [call.args[0].stem[-3:] for call in sealed.call_args_list] == ["000", "050"]
    assert [call.args[0].stem[-3:] for call in hot.call_args_list] == ["080", "110"]
