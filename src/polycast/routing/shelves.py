"""One shelf per kind of pattern: from the value of a pattern to its takers, and from a topic to the values.

Every shelf adds and removes in time that does not depend on how much it holds, so that a busy broker can take
subscriptions at any moment. Finding is done once per topic, then remembered. For substrings that rules out an
Aho-Corasick automaton, which finds faster but has to be built anew for each new one: the numbers are in
docs/decisions/0003-substrings.md.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from polycast.model import Encoder
from polycast.routing.audience import Subscriber

Takers = dict[Subscriber, Encoder]

STEP = 8
"""How many characters of a substring lie between two of its stems."""


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
            self._note(value)
        return takers

    def get(self, value: str) -> Takers | None:
        return self._takers.get(value)

    def drop(self, value: str) -> None:
        del self._takers[value]
        self._forget(value)

    def _note(self, value: str) -> None:
        """What a shelf keeps beside the takers, to find the value by."""

    def _forget(self, value: str) -> None:
        pass

    def find(self, topic: str) -> Iterator[tuple[str, Takers]]:
        """Every value that matches with its takers; one may come twice."""
        takers = self._takers.get(topic)
        if takers is not None:
            yield topic, takers


class PrefixShelf(ExactShelf):
    """Looks up the beginnings of a topic, for just those lengths that some pattern has."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: list[int] = []
        self._count_of_length: dict[int, int] = {}

    def _note(self, value: str) -> None:
        size = len(value)
        self._count_of_length[size] = count = self._count_of_length.get(size, 0) + 1
        if count == 1:
            insort(self._lengths, size)

    def _forget(self, value: str) -> None:
        size = len(value)
        self._count_of_length[size] -= 1
        if not self._count_of_length[size]:
            del self._count_of_length[size]
            self._lengths.remove(size)

    def find(self, topic: str) -> Iterator[tuple[str, Takers]]:
        for length in self._lengths:
            if length > len(topic):
                break
            value = topic[:length]
            takers = self._takers.get(value)
            if takers is not None:
                yield value, takers


class Stem:
    """A beginning that substrings share: how many go on from here, and how many end so many characters on."""

    __slots__ = ("ends", "onward")

    def __init__(self) -> None:
        self.onward = 0
        self.ends: dict[int, int] = {}


class ContainsShelf(ExactShelf):
    """Follows the stems of the substrings from each place of the topic, as far as they go."""

    def __init__(self) -> None:
        super().__init__()
        self._stems: dict[str, Stem] = {}

    def _note(self, value: str) -> None:
        last = len(value) % STEP
        for size in range(0, len(value) - last, STEP):
            self._stem(value[:size]).onward += 1
        ends = self._stem(value[: len(value) - last]).ends
        ends[last] = ends.get(last, 0) + 1

    def _forget(self, value: str) -> None:
        last = len(value) % STEP
        ends = self._stems[value[: len(value) - last]].ends
        ends[last] -= 1
        if not ends[last]:
            del ends[last]
        for size in range(0, len(value) - last, STEP):
            self._stems[value[:size]].onward -= 1
        for size in range(0, len(value) - last + 1, STEP):
            stem = self._stems[value[:size]]
            if not stem.onward and not stem.ends:
                del self._stems[value[:size]]

    def _stem(self, text: str) -> Stem:
        stem = self._stems.get(text)
        if stem is None:
            stem = self._stems[text] = Stem()
        return stem

    def find(self, topic: str) -> Iterator[tuple[str, Takers]]:
        """Never much more work than trying every substring, whatever the topic and the substrings are."""
        if len(self._takers) <= len(topic):
            yield from self._try_all(topic)
            return
        budget = len(self._takers) + STEP * len(topic)
        root = self._stems[""]
        for start in range(len(topic) or 1):  # the empty substring is in the empty topic, too
            stem: Stem | None = root
            reach = start
            while stem is not None:
                for more in stem.ends:
                    value = topic[start : reach + more]
                    takers = self._takers.get(value)
                    if takers is not None and reach + more <= len(topic):
                        yield value, takers
                budget -= 1 + len(stem.ends)
                if budget < 0:
                    yield from self._try_all(topic)
                    return
                reach += STEP
                stem = self._stems.get(topic[start:reach]) if stem.onward and reach <= len(topic) else None

    def _try_all(self, topic: str) -> Iterator[tuple[str, Takers]]:
        return ((value, takers) for value, takers in self._takers.items() if value in topic)
