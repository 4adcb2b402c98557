"""Compares a topic's message count per window with its recent history.

Windows are evaluated in order, each once it has closed, by message time only: the same messages give the same
alerts, however they are batched. The score of a window is its distance from the median of the windows before it,
divided by their deviation (median absolute deviation) plus counting noise. The noise term keeps low or constant
rates from raising an alert on a single additional message.

Every window enters the history, even an anomalous one: a few of them do not move the median, and a lasting change
becomes normal. Silence is different: it ends with the next message, and its windows do not enter the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import NamedTuple

import msgspec

from polycast.declare import setting

SPREAD = 1.4826
"""Scales the median absolute deviation to a standard deviation, for normally distributed values."""
SURGE, DROP, SILENCE = "surge", "drop", "silence"


@dataclass(frozen=True)
class AlertsSettings:
    subscribe: str = setting(">", "comma-separated patterns of topics to watch")
    window_seconds: int = setting(10, "length of a window", low=1)
    history: int = setting(60, "number of past windows to compare with", low=2)
    least: int = setting(12, "minimum number of past windows before a topic can raise alerts", low=2)
    threshold: float = setting(6.0, "distance from the median that raises an alert, in deviations", low=1)
    silent: int = setting(3, "empty windows that count as silence, if the topic had none before", low=1)
    batch_messages: int = setting(2_000_000, "maximum number of messages per batch", low=1)


class RateHistory(msgspec.Struct):
    """State of one topic. The field names are part of the checkpoint's format."""

    counts: list[int] = []
    """Messages per evaluated window, oldest first."""
    next: int = 0
    """The next window to evaluate."""
    waiting: dict[int, int] = {}
    """Messages per open window."""
    kind: str = ""
    """The current alert; empty: none."""
    since: int = 0
    """The window in which the alert began."""
    empty: int = 0
    """Consecutive windows without messages."""


class RateAlert(NamedTuple):
    kind: str
    began: bool
    """False: it is over."""
    window: int
    """The evaluated window."""
    since: int
    """The window in which it began."""
    messages: int
    median: float
    z: float


def add(history: RateHistory, counts: Mapping[int, int]) -> None:
    """Adds messages by window number. Messages for evaluated windows are dropped."""
    if not history.counts and not history.waiting and counts:
        history.next = min(counts)
    for window, count in counts.items():
        if window >= history.next:
            history.waiting[window] = history.waiting.get(window, 0) + count


def advance(history: RateHistory, end: int, rules: AlertsSettings) -> list[RateAlert]:
    alerts: list[RateAlert] = []
    while history.next < end and (history.waiting or not is_idle(history)):
        if history.next not in history.waiting and is_idle(history):
            _skip_empty(history, min(end, min(history.waiting)), rules)
            continue
        alerts += _evaluate(history, rules)
    return alerts


def is_idle(history: RateHistory) -> bool:
    """Whether no alert can begin or end before the next message."""
    return history.kind == SILENCE or (not history.kind and (not history.counts or median(history.counts) == 0))


def next_window(history: RateHistory) -> int | None:
    """The window at whose end the topic must be evaluated, if no message arrives before."""
    if not is_idle(history):
        return history.next
    return min(history.waiting) if history.waiting else None


def _skip_empty(history: RateHistory, to: int, rules: AlertsSettings) -> None:
    """Advances over empty windows that cannot raise an alert."""
    if history.kind != SILENCE:
        passed = min(to - history.next, rules.history)
        history.counts = [*history.counts, *[0] * passed][-rules.history :]
    history.next = to


def _evaluate(history: RateHistory, rules: AlertsSettings) -> list[RateAlert]:
    window, messages = history.next, history.waiting.pop(history.next, 0)
    middle = median(history.counts) if history.counts else 0.0
    z = to_z(messages, history.counts)
    history.empty = 0 if messages else history.empty + 1
    kind = _kind_of(history, messages, z, rules)
    alerts: list[RateAlert] = []
    if history.kind and kind != history.kind:
        alerts.append(RateAlert(history.kind, False, window, history.since, messages, middle, z))
    if kind and kind != history.kind:
        history.since = window - history.empty + 1 if kind == SILENCE else window
        alerts.append(RateAlert(kind, True, window, history.since, messages, middle, z))
    history.kind = kind
    if kind != SILENCE:
        history.counts = [*history.counts, messages][-rules.history :]
    history.next = window + 1
    return alerts


def to_z(messages: int, counts: list[int]) -> float:
    if not counts:
        return 0.0
    middle = median(counts)
    spread = median(abs(count - middle) for count in counts)
    return (messages - middle) / (SPREAD * spread + sqrt(middle) + 1)


def _kind_of(history: RateHistory, messages: int, z: float, rules: AlertsSettings) -> str:
    if history.kind == SILENCE and not messages:
        return SILENCE
    if len(history.counts) < rules.least:
        return ""
    if not messages and (z <= -rules.threshold or _falls_silent(history, rules)):
        return SILENCE
    if abs(z) < rules.threshold:
        return ""
    return SURGE if z > 0 else DROP


def _falls_silent(history: RateHistory, rules: AlertsSettings) -> bool:
    """The history already includes the empty windows of this silence, except the last one."""
    before = history.counts[: len(history.counts) - (history.empty - 1)]
    return history.empty >= rules.silent and len(before) >= rules.least and all(before)
