"""One shelf per kind of pattern: from the value of a pattern to its takers, and from a topic to the values.

Every shelf adds and removes in time that does not depend on how much it holds, so that a busy broker can take
subscriptions at any moment. Finding costs, for a topic of 40 characters and 100,000 patterns on the shelf,
about 0.1 µs (exact), 2 µs (prefix) and 7 µs (contains); it is done once per topic, then remembered.

For `Contains` an Aho-Corasick automaton (pyahocorasick 2.3, ahocorasick_rs 1.0) finds in 6 to 8 µs what the
shelf here finds in 7, but takes 450 to 650 ms to build for 100,000 patterns, and has to be built anew for a new
one. See docs/decisions/0003-substrings.md.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from polycast.model import Form
from polycast.routing.audience import Subscriber

Takers = dict[Subscriber, Form]

GRAM = 3
"""How many first characters of a substring choose its bucket."""


class ExactShelf:
    def __init__(self) -> None:
        self._takers: dict[str, Takers] = {}

    def __len__(self) -> int:
        return len(self._takers)

    def put(self, value: str) -> Takers:
        """The takers of a value, made if there are none yet."""
        takers = self._takers.get(value)
        if takers is None:
            takers = self._takers[value] = {}
        return takers

    def get(self, value: str) -> Takers | None:
        return self._takers.get(value)

    def drop(self, value: str) -> None:
        del self._takers[value]

    def find(self, topic: str) -> Iterator[tuple[str, Takers]]:
        takers = self._takers.get(topic)
        if takers is not None:
            yield topic, takers


class PrefixShelf(ExactShelf):
    """Looks up the beginnings of a topic, for just those lengths that some pattern has."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: list[int] = []
        self._count_of_length: dict[int, int] = {}

    def put(self, value: str) -> Takers:
        takers = self._takers.get(value)
        if takers is None:
            takers = self._takers[value] = {}
            size = len(value)
            self._count_of_length[size] = count = self._count_of_length.get(size, 0) + 1
            if count == 1:
                insort(self._lengths, size)
        return takers

    def drop(self, value: str) -> None:
        del self._takers[value]
        size = len(value)
        self._count_of_length[size] -= 1
        if not self._count_of_length[size]:
            del self._count_of_length[size]
            self._lengths.remove(size)

    def find(self, topic: str, start: int = 0) -> Iterator[tuple[str, Takers]]:
        longest = len(topic) - start
        for length in self._lengths:
            if length > longest:
                break
            value = topic[start : start + length]
            takers = self._takers.get(value)
            if takers is not None:
                yield value, takers


class ContainsShelf:
    """A substring is a prefix somewhere in the topic: one prefix shelf for each three first characters."""

    def __init__(self) -> None:
        self._buckets: dict[str, PrefixShelf] = {}
        self._short = PrefixShelf()
        """Values too short to have a bucket."""

    def __len__(self) -> int:
        return len(self._short) + sum(map(len, self._buckets.values()))

    def put(self, value: str) -> Takers:
        if len(value) < GRAM:
            return self._short.put(value)
        return self._buckets.setdefault(value[:GRAM], PrefixShelf()).put(value)

    def get(self, value: str) -> Takers | None:
        shelf = self._short if len(value) < GRAM else self._buckets.get(value[:GRAM])
        return shelf.get(value) if shelf is not None else None

    def drop(self, value: str) -> None:
        if len(value) < GRAM:
            self._short.drop(value)
            return
        bucket = self._buckets[value[:GRAM]]
        bucket.drop(value)
        if not len(bucket):
            del self._buckets[value[:GRAM]]

    def find(self, topic: str) -> Iterator[tuple[str, Takers]]:
        if len(self._short):
            for start in range(len(topic)):
                yield from self._short.find(topic, start)
        if self._buckets:
            for start in range(len(topic) - GRAM + 1):
                bucket = self._buckets.get(topic[start : start + GRAM])
                if bucket is not None:
                    yield from bucket.find(topic, start)


Shelf = ExactShelf | ContainsShelf
