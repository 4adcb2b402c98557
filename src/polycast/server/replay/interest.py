"""What a replay is to bring: which topics, in which form, and from which offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from polycast.model import Burst, Encoder, Pattern
from polycast.routing import PatternIndex, Subscriber

TOPICS_AT_MOST = 20_000
"""So many answers are remembered."""


class Wish(NamedTuple):
    encoder: Encoder
    since: int = 0
    sequence: int = 0
    """Of the topic; nothing is wanted before it, nor before that offset."""

    def begin(self, burst: Burst, run: int, first: int) -> int:
        """The first message that is wanted of a run, from that one on. It may be past its end."""
        start = burst.run_ends[run - 1] if run else 0
        return max(first, self.since - burst.offset, start + self.sequence - burst.sequences[run])


class Wishes:
    """By pattern."""

    def __init__(self) -> None:
        self._wishes: dict[Pattern, Wish] = {}
        self._index: PatternIndex | None = None
        self._found: dict[bytes, tuple[Wish, ...]] = {}

    def __len__(self) -> int:
        return len(self._wishes)

    def __iter__(self) -> Iterator[tuple[Pattern, Wish]]:
        return iter(list(self._wishes.items()))

    def put(self, pattern: Pattern, wish: Wish) -> None:
        self._wishes[pattern] = wish
        self._outdate()

    def drop(self, pattern: Pattern) -> None:
        if self._wishes.pop(pattern, None):
            self._outdate()

    def change(self, pattern: Pattern, encoder: Encoder) -> None:
        """In another form from here on."""
        if pattern in self._wishes:
            self.put(pattern, self._wishes[pattern]._replace(encoder=encoder))

    def hasten(self, pattern: Pattern, since: int) -> None:
        """From that offset on, if it is an earlier one."""
        wish = self._wishes[pattern]
        self.put(pattern, wish._replace(since=min(wish.since, since)))

    def first(self) -> int:
        """The offset before which nothing is wanted. There must be a wish."""
        return min(wish.since for wish in self._wishes.values())

    def of(self, topic: bytes) -> tuple[Wish, ...]:
        if topic not in self._found:
            if len(self._found) >= TOPICS_AT_MOST:
                self._found.clear()
            members = self._indexed().match(topic.decode()).members
            self._found[topic] = tuple(member.owner for member, _ in members)
        return self._found[topic]

    def _indexed(self) -> PatternIndex:
        if self._index is None:
            self._index = PatternIndex()
            for pattern, wish in self._wishes.items():
                self._index.add(Subscriber(wish), pattern, wish.encoder)
        return self._index

    def _outdate(self) -> None:
        self._index = None
        self._found.clear()
