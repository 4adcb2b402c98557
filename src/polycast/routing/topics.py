"""The bounded table of topics, each with its audience and its next sequence.

The table has two generations of half its capacity each. A topic in use moves to the young generation; when that is
full, the rest of the old one is forgotten. A forgotten topic must not repeat a sequence, and looks like a new
topic: every new topic therefore starts at `floor`, which is above all forgotten sequences. With topics of one
message each (an id in the name) the floor is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from polycast.routing.runs import Topic, number


class Topics:
    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: dict[bytes, Topic] = {}
        self._old: dict[bytes, Topic] = {}
        self.floor = 0
        self.forgotten = 0
        self.generations = (0, 0)
        """The offsets where the old and the young generation begin: topics used since then are in them."""

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __iter__(self) -> Iterator[Topic]:
        return chain(self._young.values(), self._old.values())

    def get(self, key: bytes) -> Topic | None:
        """None if the topic is unknown. Does not count as use."""
        return self._young.get(key) or self._old.get(key)

    def number(self, keys: list[bytes], run_ends: Sequence[int], offset: int) -> tuple[list[Topic], list[int]]:
        """The topic of each run, and the sequence of its first message; `offset`: of the first message of all."""
        return number(self._young, self.use, keys, run_ends, offset)

    def use(self, key: bytes) -> Topic:
        """Creates the topic if it is unknown. A key that is not UTF-8 raises UnicodeDecodeError.

        Only numbering may call this: which topics are forgotten depends on it, and must not depend on lookups.
        """
        topic = self._young.get(key)
        if topic is None:
            topic = self._old.pop(key, None) or Topic(key.decode(), self.floor)
            self._young[key] = topic
        return topic

    def restore(
        self, topics: Iterable[Topic], floor: int, generations: tuple[int, int] = (0, sys.maxsize)
    ) -> None:
        """After a restart. Topics that are not given start at `floor`."""
        for topic in topics:
            table = self._young if topic.last_offset >= generations[1] else self._old
            table[topic.name.encode()] = topic
        self.floor = floor
        self.generations = generations

    def trim(self, next_offset: int = 0) -> None:
        """Forgets the old generation if the young one is full. All topics in use must be numbered."""
        if len(self._young) < self._half:
            return
        self.forgotten += len(self._old)
        highest = max((topic.next_sequence for topic in self._old.values()), default=0)
        self.floor = max(self.floor, highest)
        self._old, self._young = self._young, {}
        self.generations = (self.generations[1], next_offset)
