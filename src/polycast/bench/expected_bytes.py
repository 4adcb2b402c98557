"""The exact number of bytes that a subscriber receives for a number of cycles.

For most wire formats a multiplication. Where deliveries carry a decimal sequence, their size grows with the number
of digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ExpectedBytes:
    cycle_bytes: int
    """Bytes of one cycle without the digits of its sequences."""
    counters: tuple[tuple[int, int], ...] = ()
    """(next sequence, number of topics with it)."""

    @classmethod
    def numbered(cls, cycle_bytes: int, sequences: Iterable[int]) -> ExpectedBytes:
        """`sequences`: the next one of each topic."""
        return cls(cycle_bytes, tuple(sorted(Counter(sequences).items())))

    def expected(self, cycles: int) -> int:
        digits = sum(topics * count_digits(first, cycles) for first, topics in self.counters)
        return cycles * self.cycle_bytes + digits


def count_digits(first: int, count: int) -> int:
    """Total digits of `count` consecutive numbers from `first`."""
    total = 0
    width = len(str(first))
    stop = first + count
    while first < stop:
        edge = min(stop, 10**width)
        total += (edge - first) * width
        first, width = edge, width + 1
    return total
