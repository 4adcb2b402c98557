"""Delays of messages that are due at a fixed rate.

Message `n` is due `n / rate` seconds after the start, whatever happened to the messages before it. Delays count
from there, so a stall of the target counts for every message that was due meanwhile (no coordinated omission).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import NamedTuple


@dataclass(frozen=True)
class Percentiles:
    """In seconds."""

    p50: float
    p99: float
    p999: float


class Completed(NamedTuple):
    """Messages `start` to `stop` (exclusive) were complete at this time."""

    time: float
    start: int
    stop: int


@dataclass(frozen=True)
class Schedule:
    begin: float
    rate: int

    def due_time(self, message: int) -> float:
        return self.begin + message / self.rate

    def due(self, now: float) -> int:
        """The number of messages that are due."""
        return 0 if now < self.begin else int((now - self.begin) * self.rate) + 1

    def delays(self, completed: Iterable[Completed], first: int) -> Iterator[float]:
        """Of the messages from number `first` on."""
        begin, interval = self.begin, 1 / self.rate
        for time, start, stop in completed:
            since = time - begin
            for message in range(max(start, first), stop):
                yield since - message * interval


def percentiles(delays: Iterable[float]) -> Percentiles:
    """By nearest rank: each result is one of the delays."""
    ordered = sorted(delays)
    return Percentiles(_rank(ordered, 0.5), _rank(ordered, 0.99), _rank(ordered, 0.999))


def median_percentiles(rounds: Iterable[Percentiles | None]) -> Percentiles | None:
    """The median of each over all rounds; None: no round has any."""
    known = [each for each in rounds if each]
    if not known:
        return None
    return Percentiles(*(median(getattr(each, name) for each in known) for name in ("p50", "p99", "p999")))


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, ceil(round(share * len(ordered), 6)) - 1)]
