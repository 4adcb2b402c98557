"""Things that are declared as data, once: what a setting or a counter is called, its unit, and what it means."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import field
from typing import Any

SECONDS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""The bounds of what is measured in seconds here, from a read that is handled at once to a disk that hangs."""


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    choices: tuple[str, ...] = (),
    parse: Callable[[str], object] | None = None,
) -> Any:
    """A field with what people need to know about it. `parse` raises ValueError for a text that is none."""
    metadata = {"meaning": meaning, "low": low, "choices": choices, "parse": parse}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def counter(unit: str, meaning: str, *, kind: str = "counter") -> Any:
    """`kind` as Prometheus has it: a counter only rises, a gauge says how it is now."""
    return field(default=0, metadata={"unit": unit, "meaning": meaning, "kind": kind})


class Histogram:
    """How often something took how long. One thread adds to it, any may look."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)
        """How many were up to each bound and past the one before it; last, past all of them."""

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def counts(self) -> list[int]:
        """As they are now; what is added meanwhile does not show."""
        return list(self._counts)

    @property
    def count(self) -> int:
        return sum(self.counts())


def histogram(unit: str, meaning: str) -> Any:
    """A field that holds a histogram."""
    return field(default_factory=Histogram, metadata={"unit": unit, "meaning": meaning, "kind": "histogram"})
