"""Anomalies of message rates. The alerts do not depend on batching."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from polycast.pipelines.alerts.anomalies import (
    DROP,
    SILENCE,
    SURGE,
    AlertsSettings,
    RateAlert,
    RateHistory,
    add,
    advance,
    is_idle,
    next_window,
    to_z,
)
from polycast.pipelines.runtime.definition import LIMIT_BYTES, to_topic

RULES = AlertsSettings(history=20, least=5)
FIRST = 1000
COUNTS = st.lists(st.sampled_from([0, 0, 1, 5, 6, 7, 100, 1000]), min_size=1, max_size=60)


def judge(counts: list[int], rules: AlertsSettings = RULES) -> list[RateAlert]:
    watch = RateHistory()
    add(watch, {FIRST + place: count for place, count in enumerate(counts) if count})
    return advance(watch, FIRST + len(counts), rules)


def reported(counts: list[int], rules: AlertsSettings = RULES) -> list[tuple[str, bool, int, int]]:
    return [(each.kind, each.began, each.window - FIRST, each.since - FIRST) for each in judge(counts, rules)]


def test_no_alert_without_history() -> None:
    assert reported([1000, 0, 5, 10_000]) == []
    assert reported([5] * 4 + [10_000]) == []
    assert reported([5] * 5 + [10_000]) == [(SURGE, True, 5, 5)]


def test_a_surge_begins_and_ends_once() -> None:
    assert reported([100] * 10 + [500, 600, 500] + [100] * 5) == [(SURGE, True, 10, 10), (SURGE, False, 13, 10)]


def test_a_lasting_rate_becomes_normal() -> None:
    [began, over] = reported([100] * 20 + [500] * 20)
    assert began == (SURGE, True, 20, 20)
    assert (over[:2], over[3]) == ((SURGE, False), 20)


def test_a_drop_that_becomes_silence() -> None:
    assert reported([1000] * 10 + [300, 0, 0, 0, 1000]) == [
        (DROP, True, 10, 10),
        (DROP, False, 11, 10),
        (SILENCE, True, 11, 11),
        (SILENCE, False, 14, 11),
    ]


def test_silence_of_a_low_rate() -> None:
    assert reported([3] * 10 + [0, 0, 3]) == []
    assert reported([3] * 10 + [0] * 500 + [3]) == [(SILENCE, True, 12, 10), (SILENCE, False, 510, 10)]


def test_rare_topics_raise_no_silence() -> None:
    assert reported(([1] + [0] * 9) * 10) == []


def test_noise_raises_no_alert() -> None:
    chance = random.Random(7)
    for rate in (2, 20, 200, 20_000):
        counts = [max(0, round(chance.gauss(rate, rate**0.5))) for _ in range(2000)]
        assert [each for each in reported(counts, AlertsSettings()) if each[0] != SILENCE] == []


def test_z_score() -> None:
    assert to_z(100, []) == 0
    assert to_z(20, [9, 9, 9]) == (20 - 9) / (3 + 1)
    assert to_z(4, [2, 4, 6]) == 0


@given(COUNTS, st.lists(st.integers(1, 7), max_size=60))
def test_batching_makes_no_difference(counts: list[int], steps: list[int]) -> None:
    """As in Spark: state is written between batches, and a topic is evaluated when it has messages or is due."""
    state, found, at = msgspec.msgpack.encode(RateHistory()), [], 0
    for step in [*steps, len(counts)]:
        watch = msgspec.msgpack.decode(state, type=RateHistory)
        piece = {FIRST + n: counts[n] for n in range(at, min(at + step, len(counts))) if counts[n]}
        wanted = next_window(watch)
        if piece or (wanted is not None and wanted < FIRST + at):
            found += advance(watch, FIRST + at, RULES)
            add(watch, piece)
        at = min(at + step, len(counts))
        state = msgspec.msgpack.encode(watch)
    last = msgspec.msgpack.decode(state, type=RateHistory)
    if next_window(last) is not None:
        found += advance(last, FIRST + len(counts), RULES)
    assert found == judge(counts)
    assert is_idle(last) == (next_window(last) is None or bool(last.waiting))


def test_report_topics_respect_the_length_limit() -> None:
    assert to_topic("polycast/alerts/", "a") == "polycast/alerts/a"
    long = [to_topic("polycast/alerts/", "\N{EURO SIGN}" * 341 + end) for end in "ab"]
    assert len(set(long)) == 2
    assert all(len(topic.encode()) <= LIMIT_BYTES for topic in long)
