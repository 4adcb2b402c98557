"""The subscriptions of a SUB socket: prefixes of messages, with a count each, as in nanomsg."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class PrefixFilter:
    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._sizes: list[int] = []
        """The lengths of all topics: a message needs one lookup for each length."""

    def add(self, topic: bytes) -> None:
        self._counts[topic] += 1
        self._sizes = sorted(set(map(len, self._counts)))

    def remove(self, topic: bytes) -> None:
        """A topic that was added twice must be removed twice."""
        if self._counts[topic] > 1:
            self._counts[topic] -= 1
        else:
            del self._counts[topic]
            self._sizes = sorted(set(map(len, self._counts)))

    def matching(self, messages: Iterable[bytes]) -> list[bytes]:
        """The messages that start with one of the topics."""
        counts = self._counts
        if b"" in counts:
            return list(messages)
        if len(self._sizes) == 1:
            [size] = self._sizes
            return [message for message in messages if message[:size] in counts]
        return [message for message in messages if self._matches(message)]

    def _matches(self, message: bytes) -> bool:
        return any(message[:size] in self._counts for size in self._sizes)
