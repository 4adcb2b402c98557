"""One topic's rate against its own recent past, window by window.

Windows are judged one after the other, each once it is over, by the time of the messages and by no other clock:
the same messages give the same alerts, whatever pieces they come in. A window is compared with the median of those
before it, in units of their spread (the median of the distances from it), to which the noise of counting is added:
that keeps rates that are small, or the same all the time, from being extraordinary at the first message too many.

Every window counts for those after it, also one that was extraordinary: a few of them do not move a median, and
what goes on is normal in the end. Silence is different. It ends with the next message, and until then no time
passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import NamedTuple

import msgspec

SPREAD = 1.4826
"""From the median of distances to a standard deviation, for what is normally distributed."""
SURGE, DROP, SILENCE = "surge", "drop", "silence"


@dataclass(frozen=True)
class RateRules:
    seconds: int = 10
    """How long a window is."""
    history: int = 60
    """With how many windows one is compared."""
    least: int = 12
    """Without so many, nothing is extraordinary."""
    threshold: float = 6.0
    silent: int = 3
    """How many empty windows are silence, for a topic that had none."""


class RateHistory(msgspec.Struct):
    """What is remembered of a topic."""

    counts: list[int] = []
    """Of the windows that were judged, the oldest first."""
    next: int = 0
    """The number of the window that is judged next."""
    waiting: dict[int, int] = {}
    """Messages of windows that are not over."""
    kind: str = ""
    """What is the matter; nothing, if it is empty."""
    since: int = 0
    """The window in which that began."""
    empty: int = 0
    """How many windows without a message came one after the other."""


class RateAlert(NamedTuple):
    kind: str
    began: bool
    """Or else it is over."""
    window: int
    """The one that told."""
    since: int
    """The one in which it began."""
    messages: int
    median: float
    z: float


def add(watch: RateHistory, counts: Mapping[int, int]) -> None:
    """Messages by the number of their window. What comes for windows that were judged is too late."""
    if not watch.counts and not watch.waiting and counts:
        watch.next = min(counts)
    for window, count in counts.items():
        if window >= watch.next:
            watch.waiting[window] = watch.waiting.get(window, 0) + count


def advance(watch: RateHistory, end: int, rules: RateRules) -> list[RateAlert]:
    """Judges all windows before `end`."""
    judged: list[RateAlert] = []
    while watch.next < end and (watch.waiting or not is_idle(watch)):
        if watch.next not in watch.waiting and is_idle(watch):
            _skip_empty(watch, min(end, min(watch.waiting)), rules)
            continue
        judged += _judge(watch, rules)
    return judged


def is_idle(watch: RateHistory) -> bool:
    """Whether nothing can happen to it before its next message."""
    return watch.kind == SILENCE or (not watch.kind and (not watch.counts or median(watch.counts) == 0))


def next_window(watch: RateHistory) -> int | None:
    """The window after which it must be looked at, if nothing comes before."""
    if not is_idle(watch):
        return watch.next
    return min(watch.waiting) if watch.waiting else None


def _skip_empty(watch: RateHistory, to: int, rules: RateRules) -> None:
    """Windows without a message that could not be extraordinary."""
    if watch.kind != SILENCE:
        passed = min(to - watch.next, rules.history)
        watch.counts = [*watch.counts, *[0] * passed][-rules.history :]
    watch.next = to


def _judge(watch: RateHistory, rules: RateRules) -> list[RateAlert]:
    window, messages = watch.next, watch.waiting.pop(watch.next, 0)
    middle = median(watch.counts) if watch.counts else 0.0
    z = to_z(messages, watch.counts)
    watch.empty = 0 if messages else watch.empty + 1
    kind = _kind_of(watch, messages, z, rules)
    judged: list[RateAlert] = []
    if watch.kind and kind != watch.kind:
        judged.append(RateAlert(watch.kind, False, window, watch.since, messages, middle, z))
    if kind and kind != watch.kind:
        watch.since = window - watch.empty + 1 if kind == SILENCE else window
        judged.append(RateAlert(kind, True, window, watch.since, messages, middle, z))
    watch.kind = kind
    if kind != SILENCE:
        watch.counts = [*watch.counts, messages][-rules.history :]
    watch.next = window + 1
    return judged


def to_z(messages: int, counts: list[int]) -> float:
    if not counts:
        return 0.0
    middle = median(counts)
    spread = median(abs(count - middle) for count in counts)
    return (messages - middle) / (SPREAD * spread + sqrt(middle) + 1)


def _kind_of(watch: RateHistory, messages: int, z: float, rules: RateRules) -> str:
    if watch.kind == SILENCE and not messages:
        return SILENCE
    if len(watch.counts) < rules.least:
        return ""
    if not messages and (z <= -rules.threshold or _falls_silent(watch, rules)):
        return SILENCE
    if abs(z) < rules.threshold:
        return ""
    return SURGE if z > 0 else DROP


def _falls_silent(watch: RateHistory, rules: RateRules) -> bool:
    """The empty windows of this silence but the last are in its past already."""
    before = watch.counts[: len(watch.counts) - (watch.empty - 1)]
    return watch.empty >= rules.silent and len(before) >= rules.least and all(before)
