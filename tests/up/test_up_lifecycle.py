"""Restart rules of a part."""

from __future__ import annotations

import pytest

from polycast.pipelines.service import SPARK_UNAVAILABLE
from polycast.pipelines.service.backoff import HEALTHY_SECONDS, Backoff
from polycast.up.lifecycle import TABLE, USAGE_ERROR, Lifecycle, PartEvent, PartState

KILLED = -9


def test_the_delay_grows_up_to_a_minute() -> None:
    rest = Backoff()
    assert [rest.after(0.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_delay_starts_over_after_a_long_run() -> None:
    rest = Backoff()
    assert [rest.after(lived) for lived in (0, 0, HEALTHY_SECONDS - 1, HEALTHY_SECONDS, 0)] == [1, 2, 4, 1, 2]


def running(lifecycle: Lifecycle, now: float) -> Lifecycle:
    lifecycle.begin(now)
    lifecycle.ready(now)
    return lifecycle


def test_a_part_that_ends_is_restarted() -> None:
    lifecycle = running(Lifecycle(), 10.0)
    assert (lifecycle.state, lifecycle.since, lifecycle.restarts) == (PartState.RUNNING, 10.0, 0)
    lifecycle.end(11.0, KILLED, "killed")
    assert (lifecycle.state, lifecycle.due, lifecycle.reason) == (PartState.RESTING, 12.0, "killed")
    running(lifecycle, 12.0)
    assert (lifecycle.state, lifecycle.restarts, lifecycle.reason) == (PartState.RUNNING, 1, "")


def test_start_up_time_is_not_uptime() -> None:
    lifecycle = Lifecycle()
    for expected in (1.0, 2.0, 4.0):
        lifecycle.begin(0.0)
        lifecycle.end(1000.0, 1, "")
        assert lifecycle.due == 1000.0 + expected
    running(lifecycle, 2000.0)
    lifecycle.end(2000.0 + HEALTHY_SECONDS, 1, "")
    assert lifecycle.due == 2000.0 + HEALTHY_SECONDS + 1.0


@pytest.mark.parametrize("code", [SPARK_UNAVAILABLE, USAGE_ERROR])
def test_a_permanent_failure_is_not_restarted(code: int) -> None:
    lifecycle = Lifecycle()
    lifecycle.begin(0.0)
    lifecycle.end(1.0, code, "no Java")
    assert (lifecycle.state, lifecycle.reason) == (PartState.OFF, "no Java")


def test_up_fails_if_the_broker_cannot_start() -> None:
    lifecycle = Lifecycle(essential=True)
    lifecycle.begin(0.0)
    lifecycle.end(1.0, 1, "the port is taken")
    assert (lifecycle.state, lifecycle.reason) == (PartState.FAILED, "the port is taken")


def test_a_broker_that_was_ready_is_always_restarted() -> None:
    lifecycle = running(Lifecycle(essential=True), 0.0)
    for _ in range(20):
        lifecycle.end(1.0, USAGE_ERROR, "")
        assert lifecycle.state is PartState.RESTING
        lifecycle.begin(2.0)


def test_a_disabled_part_is_never_started() -> None:
    lifecycle = Lifecycle()
    lifecycle.disable(5.0, "no log")
    assert (lifecycle.state, lifecycle.since, lifecycle.reason) == (PartState.OFF, 5.0, "no log")


@pytest.mark.parametrize("state", PartState)
def test_everything_can_be_stopped(state: PartState) -> None:
    assert TABLE[state, PartEvent.STOP] is PartState.STOPPED


def test_a_target_that_exits_is_not_ready() -> None:
    lifecycle = running(Lifecycle(), 0.0)
    lifecycle.end(1.0, 1, "")
    with pytest.raises(KeyError):
        lifecycle.ready(2.0)
