"""Schedule, steps and settings of a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.errors import UsageError
from polycast.pipelines.replay.pipeline import (
    ReplayPosition,
    ReplaySettings,
    select_checkpoint,
    to_position,
    within_hours,
)
from polycast.pipelines.replay.schedule import ReplaySchedule
from polycast.pipelines.replay.steps import to_steps, write_steps


class Clock:
    """A clock that advances by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(("speed", "due"), [(1.0, 1010.0), (10.0, 1001.0), (0.5, 1020.0)])
def test_intervals_scale_with_speed(speed: float, due: float) -> None:
    clock = Clock()
    schedule = ReplaySchedule(speed, clock.sleep, lambda: clock.now)
    schedule.wait(5_000_000)
    assert clock.naps == []
    schedule.wait(15_000_000)
    assert clock.now == due
    clock.now += 3
    schedule.wait(16_000_000)
    assert clock.now == max(due + 3, 1000 + 11 / speed)


def test_long_waits_are_split() -> None:
    clock = Clock()
    schedule = ReplaySchedule(1.0, clock.sleep, lambda: clock.now)
    schedule.wait(0)
    schedule.wait(3600 * 1_000_000)
    assert clock.now == 4600.0
    assert len(clock.naps) == 60


# -- steps -----------------------------------------------------------------------------------------------

ranges = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=6).map(
    lambda pairs: sorted((first, first + size) for first, size in pairs)
)


@given(ranges, st.integers(1, 30))
def test_steps_cover_each_offset_once_in_order(files: list[tuple[int, int]], size: int) -> None:
    steps = to_steps(files, size)
    taken = [offset for first, after in steps for offset in range(first, after)]
    assert taken == sorted({offset for first, last in files for offset in range(first, last + 1)})
    assert all(0 < after - first <= size for first, after in steps)


def test_steps_are_written_once(tmp_path: Path) -> None:
    write_steps(tmp_path / "steps", [(0, 5), (5, 9)])
    before = {path.name: path.read_text() for path in (tmp_path / "steps").iterdir()}
    assert [before[name] for name in sorted(before) if name.endswith(".json")] == [
        '{"first": 0, "next": 5}\n',
        '{"first": 5, "next": 9}\n',
    ]
    write_steps(tmp_path / "steps", [(0, 100)])
    assert {path.name: path.read_text() for path in (tmp_path / "steps").iterdir()} == before


def test_hours_outside_the_range_are_skipped() -> None:
    files = [(n, n, Path(f"lake/date=2026-11-15/hour={n:02}/x.parquet")) for n in range(24)]
    start, end = to_position("start", "2026-11-15T20:30"), to_position("end", "2026-11-15T22:00")
    assert [file[0] for file in within_hours(files, start, end)] == [20, 21, 22]
    assert within_hours(files, ReplayPosition(offset=3), None) == files


# -- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prefix": "polycast/again/"}, "are reserved"),
        ({"start": "-10m"}, "is not a position in a log"),
        ({"start": "yesterday"}, "is not a position in a log"),
        ({"end": "2026-13-01"}, "is not a position in a log"),
        ({"prefix": ""}, "would read its own output"),
        ({"prefix": "", "end": "2999-01-01"}, "would read its own output"),
    ],
)
def test_invalid_settings(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ReplaySettings(**given)


def test_equal_settings_are_the_same_replay(tmp_path: Path) -> None:
    assert ReplaySettings().id == ReplaySettings().id
    assert len({ReplaySettings().id, ReplaySettings(name="again").id, ReplaySettings(end="17").id}) == 3
    assert ReplaySettings(prefix="", end="2020-01-01").prefix == ""
    checkpoint = tmp_path / "checkpoints" / "replay"
    select_checkpoint(checkpoint, "one")
    (checkpoint / "metadata").write_text("1")
    select_checkpoint(checkpoint, "two")
    assert not (checkpoint / "metadata").exists()
    select_checkpoint(checkpoint, "one")
    assert (checkpoint / "metadata").read_text() == "1"


def test_a_position_is_an_offset_or_a_time() -> None:
    assert to_position("start", "earliest") is None
    assert to_position("start", "17") == ReplayPosition(offset=17)
    assert to_position("end", "1970-01-01T00:01") == ReplayPosition(micros=60_000_000)
    assert to_position("end", "1970-01-01T01:01+01:00") == ReplayPosition(micros=60_000_000)
