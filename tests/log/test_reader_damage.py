"""Damaged files: readers return the written rows or report damage, never wrong rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from log.log_builder import LogBuilder, Row, every_byte, flip, to_rows
from polycast.log.files.format import Gap
from polycast.log.read.reader import Reader
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path)


def read_all(folder: Path, offset: int = 0) -> tuple[list[Row], list[Gap]]:
    reader = Reader(folder, offset)
    try:
        batches = []
        while (batch := reader.read()) is not None:
            batches.append(batch)
        return to_rows(batches), reader.skipped
    finally:
        reader.close()


def check_honest(builder: LogBuilder, found: list[Row], skipped: list[Gap], end_known: bool) -> None:
    """Every row is correct, once and in order, and missing rows are reported."""
    right = {row["offset"]: row for row in builder.rows}
    assert all(row == right[row["offset"]] for row in found)
    offsets = [row["offset"] for row in found]
    assert offsets == sorted(set(offsets))
    missing = set(right) - set(offsets)
    named = {offset for gap in skipped for offset in range(gap.first, gap.next)}
    if not end_known:  # of the last segment nobody knows how far it went
        missing = {offset for offset in missing if offset < max(offsets, default=-1)}
    assert missing <= named
    assert not named & set(offsets)


def flips(path: Path) -> Iterator[int]:
    """One wrong bit at a time, in bytes all over the file."""
    for position in every_byte(0, path.stat().st_size):
        flip(path, position, 1 << position % 8)
        yield position
        flip(path, position, 1 << position % 8)


def test_a_hot_file_cut_anywhere_gives_a_prefix(builder: LogBuilder) -> None:
    path = builder.segment(2, 3, 1, 2)
    whole = path.read_bytes()
    for size in chain(range(0, builder.positions[2], 13), every_byte(builder.positions[2], len(whole) + 1)):
        path.write_bytes(whole[:size])
        found, skipped = read_all(builder.folder)
        assert found == builder.rows[: len(found)], size
        assert len(found) >= sum([2, 3][: sum(size >= end for end in builder.positions[1:3])]), size
        assert skipped == [], size


@pytest.mark.slow
def test_a_byte_of_the_last_hot_file_is_flipped(builder: LogBuilder) -> None:
    path = builder.segment(2, 1)
    for _ in flips(path):
        found, skipped = read_all(builder.folder)
        check_honest(builder, found, skipped, end_known=False)


@pytest.mark.slow
def test_a_byte_of_a_hot_file_is_flipped_and_segments_follow(builder: LogBuilder) -> None:
    path = builder.segment(2, 1)
    first, last = builder.positions
    builder.segment(4)
    for position in flips(path):
        found, skipped = read_all(builder.folder)
        check_honest(builder, found, skipped, end_known=True)
        lost = len(builder.rows) - len(found)
        if first <= position < last:
            assert lost == 2, position  # the group, and nothing but the group


@pytest.mark.slow
def test_a_byte_of_a_sealed_file_is_flipped(builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 3)
    path = seal(builder.segment(3, 2))
    assert path is not None
    builder.segment(2)
    noticed = 0
    for position in flips(path):
        found, skipped = read_all(builder.folder)
        check_honest(builder, found, skipped, end_known=True)
        assert len(found) >= 2, position
        noticed += bool(skipped)
    assert noticed > len(every_byte(0, path.stat().st_size)) // 50  # other bytes are statistics, or never read


def test_a_truncated_sealed_file_is_reported(builder: LogBuilder) -> None:
    path = seal(builder.segment(3, 3, 2))
    assert path is not None
    builder.segment(2)
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        found, skipped = read_all(builder.folder)
        assert found == builder.rows[8:]
        assert [(gap.first, gap.next) for gap in skipped] == [(0, 8)]
