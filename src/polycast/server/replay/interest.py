"""Interests of a replay: patterns, each with its encoder and first offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from polycast.model import Burst, Encoder, Pattern
from polycast.routing import PatternIndex, Subscriber

TOPICS_AT_MOST = 20_000
"""Topics whose interests are cached."""


class Interest(NamedTuple):
    encoder: Encoder
    since: int = 0
    sequence: int = 0
    """The first sequence of the topic. Messages before it, and before the offset `since`, are left out."""

    def begin(self, burst: Burst, run: int, first: int) -> int:
        """The index of the first message to send of a run, not before `first`. It may be past the run."""
        start = burst.run_ends[run - 1] if run else 0
        return max(first, self.since - burst.offset, start + self.sequence - burst.sequences[run])


class Interests:
    """The interests of one replay, by pattern."""

    def __init__(self) -> None:
        self._interests: dict[Pattern, Interest] = {}
        self._index: PatternIndex | None = None
        self._found: dict[bytes, tuple[Interest, ...]] = {}

    def __len__(self) -> int:
        return len(self._interests)

    def __iter__(self) -> Iterator[tuple[Pattern, Interest]]:
        return iter(list(self._interests.items()))

    def put(self, pattern: Pattern, interest: Interest) -> None:
        self._interests[pattern] = interest
        self._outdate()

    def drop(self, pattern: Pattern) -> None:
        if self._interests.pop(pattern, None):
            self._outdate()

    def change(self, pattern: Pattern, encoder: Encoder) -> None:
        """Another encoder from here on."""
        if pattern in self._interests:
            self.put(pattern, self._interests[pattern]._replace(encoder=encoder))

    def start_earlier(self, pattern: Pattern, since: int) -> None:
        """From this offset on, if it is earlier."""
        interest = self._interests[pattern]
        self.put(pattern, interest._replace(since=min(interest.since, since)))

    def first(self) -> int:
        """The lowest offset of all. There must be at least one interest."""
        return min(interest.since for interest in self._interests.values())

    def of(self, topic: bytes) -> tuple[Interest, ...]:
        if topic not in self._found:
            if len(self._found) >= TOPICS_AT_MOST:
                self._found.clear()
            members = self._indexed().match(topic.decode()).members
            self._found[topic] = tuple(member.owner for member, _ in members)
        return self._found[topic]

    def _indexed(self) -> PatternIndex:
        if self._index is None:
            self._index = PatternIndex()
            for pattern, interest in self._interests.items():
                self._index.add(Subscriber(interest), pattern, interest.encoder)
        return self._index

    def _outdate(self) -> None:
        self._index = None
        self._found.clear()
