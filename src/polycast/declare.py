"""Settings and metrics as declared data: name, unit, meaning."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import field
from typing import Any

SECONDS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Bucket bounds of histograms in seconds."""


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    choices: tuple[str, ...] = (),
    parse: Callable[[str], object] | None = None,
) -> Any:
    """A dataclass field with its documentation. `parse` raises ValueError for an invalid text."""
    metadata = {"meaning": meaning, "low": low, "choices": choices, "parse": parse}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def counter(unit: str, meaning: str, *, kind: str = "counter") -> Any:
    """`kind`: counter or gauge, as in Prometheus."""
    return field(default=0, metadata={"unit": unit, "meaning": meaning, "kind": kind})


class Histogram:
    """One thread adds, any thread reads."""

    __slots__ = ("_counts", "sum")

    bounds = SECONDS

    def __init__(self) -> None:
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)
        """Values per bucket; the last bucket has no upper bound."""

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def counts(self) -> list[int]:
        """A snapshot."""
        return list(self._counts)

    @property
    def count(self) -> int:
        return sum(self.counts())


def histogram(unit: str, meaning: str) -> Any:
    return field(default_factory=Histogram, metadata={"unit": unit, "meaning": meaning, "kind": "histogram"})
