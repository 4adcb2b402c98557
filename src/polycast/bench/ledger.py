"""The ledger: what a subscriber is owed for any number of cycles, to the byte.

On most wires that is a multiplication. Where deliveries are numbered they become longer as the numbers do,
and the ledger knows by how much: it counts digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ledger:
    cycle_bytes: int
    """The bytes of one cycle, less the digits of its sequences."""
    counters: tuple[tuple[int, int], ...] = ()
    """(next sequence, how many topics stand there)."""

    @classmethod
    def numbered(cls, cycle_bytes: int, sequences: Iterable[int]) -> Ledger:
        """From one cycle's bytes without digits, and the next sequence of each topic."""
        return cls(cycle_bytes, tuple(sorted(Counter(sequences).items())))

    def owed(self, cycles: int) -> int:
        digits = sum(topics * count_digits(first, cycles) for first, topics in self.counters)
        return cycles * self.cycle_bytes + digits


def count_digits(first: int, count: int) -> int:
    """How many digits it takes to write `count` numbers in a row, from `first` on."""
    total = 0
    width = len(str(first))
    stop = first + count
    while first < stop:
        edge = min(stop, 10**width)
        total += (edge - first) * width
        first, width = edge, width + 1
    return total
