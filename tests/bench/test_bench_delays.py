"""Due times, and the percentiles of delays that count from them."""

from __future__ import annotations

import pytest

from polycast.bench.delays import Completed, Percentiles, Schedule, median_percentiles, percentiles

SCHEDULE = Schedule(begin=100.0, rate=1000)


def test_a_message_is_due_when_its_time_has_come() -> None:
    assert SCHEDULE.due(99.9) == 0
    assert SCHEDULE.due(100.0) == 1
    assert SCHEDULE.due(100.0105) == 11
    assert SCHEDULE.due_time(10) == 100.01


def test_delays_count_from_the_due_time() -> None:
    """Messages 0 to 3 were due one millisecond after the other, and arrived together."""
    delays = SCHEDULE.delays([Completed(100.005, 0, 4)], first=0)
    assert list(delays) == pytest.approx([0.005, 0.004, 0.003, 0.002])


def test_a_stall_counts_for_every_message_that_was_due_meanwhile() -> None:
    """No coordinated omission: a stall of one second delays a thousand messages, not one."""
    late = [Completed(SCHEDULE.due_time(n) + 0.0001, n, n + 1) for n in range(1000)]
    found = percentiles(SCHEDULE.delays([*late, Completed(102.0, 1000, 2000)], first=0))
    assert found.p50 < 0.01
    assert found.p99 == pytest.approx(0.981, abs=0.002)


def test_the_warm_up_does_not_count() -> None:
    completed = [Completed(101.0, 0, 5), Completed(100.01, 5, 10)]
    assert list(SCHEDULE.delays(completed, first=8)) == pytest.approx([0.002, 0.001])


def test_percentiles_are_measured_delays() -> None:
    assert percentiles(range(1, 1001)) == Percentiles(500, 990, 999)
    assert percentiles([3.0, 1.0, 2.0]) == Percentiles(2.0, 3.0, 3.0)
    assert percentiles([7.0]) == Percentiles(7.0, 7.0, 7.0)


def test_median_of_rounds() -> None:
    rounds = [Percentiles(1, 20, 300), None, Percentiles(3, 10, 100), Percentiles(2, 30, 200)]
    assert median_percentiles(rounds) == Percentiles(2, 20, 200)
    assert median_percentiles([None]) is None
