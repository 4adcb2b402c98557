"""The topics that were seen, each with its audience and its next sequence; bounded.

The table holds two generations of half its capacity each. A topic that is used again moves to the young
one; when that is full, whatever was left in the old one is forgotten. A forgotten topic must not get a sequence
twice, and cannot be told from a new one: so every topic that is new from then on starts at `floor`, which is
past every sequence that was forgotten. With topics that carry one message each (names with an id in them) that
is 1 where it was 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from polycast.routing.audience import Audience


class Topic:
    __slots__ = ("audience", "last_offset", "name", "next_sequence", "stamp")

    def __init__(self, name: str, next_sequence: int, last_offset: int = -1) -> None:
        self.name = name
        self.next_sequence = next_sequence
        self.last_offset = last_offset
        """Of its last message; -1: it has none."""
        self.audience: Audience
        self.stamp = -1
        """The state of the index that `audience` was found in; -1: none."""


class Topics:
    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: dict[bytes, Topic] = {}
        self._old: dict[bytes, Topic] = {}
        self.floor = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __iter__(self) -> Iterator[Topic]:
        return chain(self._young.values(), self._old.values())

    def get(self, key: bytes) -> Topic | None:
        """A topic if it is known; asking does not count as use."""
        return self._young.get(key) or self._old.get(key)

    def use(self, key: bytes) -> Topic:
        """The topic of this key, made if need be. A key that is not UTF-8 raises UnicodeDecodeError."""
        topic = self._young.get(key)
        if topic is None:
            topic = self._old.pop(key, None) or Topic(key.decode(), self.floor)
            self._young[key] = topic
        return topic

    def restore(self, topics: Iterable[Topic], floor: int) -> None:
        """As they were when the broker stopped; topics that were not known then start at `floor`."""
        self._old = {topic.name.encode(): topic for topic in topics}
        self.floor = floor

    def trim(self) -> None:
        """Forgets, if need be. To be called when every topic in use has been given its sequences."""
        if len(self._young) < self._half:
            return
        self.forgotten += len(self._old)
        highest = max((topic.next_sequence for topic in self._old.values()), default=0)
        self.floor = max(self.floor, highest)
        self._old, self._young = self._young, {}
