"""When a part is started again, and when it is not."""

from __future__ import annotations

import pytest

from polycast.pipelines.service import SPARK_UNAVAILABLE
from polycast.pipelines.service.backoff import HEALTHY_SECONDS, Backoff
from polycast.up.life import TABLE, WRONG_USAGE, Event, Life, State

KILLED = -9


def test_longer_each_time_up_to_a_minute() -> None:
    rest = Backoff()
    assert [rest.after(0.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_anew_after_a_while() -> None:
    rest = Backoff()
    assert [rest.after(lived) for lived in (0, 0, HEALTHY_SECONDS - 1, HEALTHY_SECONDS, 0)] == [1, 2, 4, 1, 2]


def running(life: Life, now: float) -> Life:
    life.begin(now)
    life.ready(now)
    return life


def test_a_part_that_ends_rests_and_begins_again() -> None:
    life = running(Life(), 10.0)
    assert (life.state, life.since, life.restarts) == (State.RUNNING, 10.0, 0)
    life.end(11.0, KILLED, "killed")
    assert (life.state, life.due, life.reason) == (State.RESTING, 12.0, "killed")
    running(life, 12.0)
    assert (life.state, life.restarts, life.reason) == (State.RUNNING, 1, "")


def test_the_time_that_it_takes_to_start_is_no_life() -> None:
    life = Life()
    for expected in (1.0, 2.0, 4.0):
        life.begin(0.0)
        life.end(1000.0, 1, "")
        assert life.due == 1000.0 + expected
    running(life, 2000.0)
    life.end(2000.0 + HEALTHY_SECONDS, 1, "")
    assert life.due == 2000.0 + HEALTHY_SECONDS + 1.0


@pytest.mark.parametrize("code", [SPARK_UNAVAILABLE, WRONG_USAGE])
def test_what_cannot_work_here_is_not_tried_again(code: int) -> None:
    life = Life()
    life.begin(0.0)
    life.end(1.0, code, "no Java")
    assert (life.state, life.reason) == (State.OFF, "no Java")


def test_without_what_is_essential_there_is_no_use_in_going_on() -> None:
    life = Life(essential=True)
    life.begin(0.0)
    life.end(1.0, 1, "the port is taken")
    assert (life.state, life.reason) == (State.FAILED, "the port is taken")


def test_but_once_it_was_there_it_is_tried_for_ever() -> None:
    life = running(Life(essential=True), 0.0)
    for _ in range(20):
        life.end(1.0, WRONG_USAGE, "")
        assert life.state is State.RESTING
        life.begin(2.0)


def test_what_is_left_out_was_never_begun() -> None:
    life = Life()
    life.leave_out(5.0, "no log")
    assert (life.state, life.since, life.reason) == (State.OFF, 5.0, "no log")


@pytest.mark.parametrize("state", State)
def test_everything_can_be_stopped(state: State) -> None:
    assert TABLE[state, Event.STOP] is State.STOPPED


def test_what_has_ended_is_not_ready() -> None:
    life = running(Life(), 0.0)
    life.end(1.0, 1, "")
    with pytest.raises(KeyError):
        life.ready(2.0)
