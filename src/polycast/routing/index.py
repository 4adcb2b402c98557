"""The pattern index: from subscriptions to the audience of a topic. It caches nothing; `Router` does.

One table per kind of pattern leads from the value of a pattern to its subscribers, and from a topic to the values.
Adding and removing take constant time, so that a busy broker can accept subscriptions at any time. Lookups happen
once per topic and are cached. For substrings this rules out an Aho-Corasick automaton, which finds faster but must
be rebuilt for each new substring: see docs/decisions/0003-substrings.md for the measurements.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from polycast.model import RESERVED_PREFIX, Contains, Encoder, Everything, Exact, Pattern, Prefix
from polycast.routing.audience import Audience, Audiences, Subscriber, intern

Subscribers = dict[Subscriber, Encoder]

STEP = 8
"""Characters between two stems of a substring."""


class ExactTable:
    def __init__(self) -> None:
        self._subscribers: dict[str, Subscribers] = {}

    def __len__(self) -> int:
        return len(self._subscribers)

    def put(self, value: str) -> Subscribers:
        """The subscribers of a value; an empty table for a new value."""
        if value not in self._subscribers:
            self._subscribers[value] = {}
            self._add_value(value)
        return self._subscribers[value]

    def get(self, value: str) -> Subscribers | None:
        return self._subscribers.get(value)

    def drop(self, value: str) -> None:
        del self._subscribers[value]
        self._remove_value(value)

    def _add_value(self, value: str) -> None:
        """Updates the lookup structure of a subclass."""

    def _remove_value(self, value: str) -> None:
        pass

    def find(self, topic: str) -> Iterator[tuple[str, Subscribers]]:
        """Every matching value with its subscribers, possibly more than once."""
        subscribers = self._subscribers.get(topic)
        if subscribers is not None:
            yield topic, subscribers


class PrefixTable(ExactTable):
    """Looks up the prefixes of a topic, for the lengths that patterns have."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: list[int] = []
        self._count_of_length: Counter[int] = Counter()

    def _add_value(self, value: str) -> None:
        size = len(value)
        self._count_of_length[size] += 1
        if self._count_of_length[size] == 1:
            insort(self._lengths, size)

    def _remove_value(self, value: str) -> None:
        size = len(value)
        self._count_of_length[size] -= 1
        if not self._count_of_length[size]:
            del self._count_of_length[size]
            self._lengths.remove(size)

    def find(self, topic: str) -> Iterator[tuple[str, Subscribers]]:
        for length in self._lengths:
            if length > len(topic):
                break
            value = topic[:length]
            subscribers = self._subscribers.get(value)
            if subscribers is not None:
                yield value, subscribers


@dataclass(slots=True)
class Stem:
    """A shared beginning of substrings: how many continue, and how many end after how many characters."""

    onward: int = 0
    ends: Counter[int] = field(default_factory=Counter)


class ContainsTable(ExactTable):
    """Follows the stems of substrings from each position of the topic."""

    def __init__(self) -> None:
        super().__init__()
        self._stems: defaultdict[str, Stem] = defaultdict(Stem)

    def _add_value(self, value: str) -> None:
        last = len(value) % STEP
        for size in range(0, len(value) - last, STEP):
            self._stems[value[:size]].onward += 1
        self._stems[value[: len(value) - last]].ends[last] += 1

    def _remove_value(self, value: str) -> None:
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

    def find(self, topic: str) -> Iterator[tuple[str, Subscribers]]:
        """Bounded by about the work of trying every substring, for any topic and any substrings."""
        if len(self._subscribers) <= len(topic):
            yield from self._try_all(topic)
            return
        budget = len(self._subscribers) + STEP * len(topic)
        root = self._stems[""]
        for start in range(len(topic) or 1):  # the empty topic contains the empty substring
            stem: Stem | None = root
            reach = start
            while stem is not None:
                for more in stem.ends:
                    value = topic[start : reach + more]
                    subscribers = self._subscribers.get(value)
                    if subscribers is not None and reach + more <= len(topic):
                        yield value, subscribers
                budget -= 1 + len(stem.ends)
                if budget < 0:
                    yield from self._try_all(topic)
                    return
                reach += STEP
                stem = self._stems.get(topic[start:reach]) if stem.onward and reach <= len(topic) else None

    def _try_all(self, topic: str) -> Iterator[tuple[str, Subscribers]]:
        return ((value, subscribers) for value, subscribers in self._subscribers.items() if value in topic)


class PatternIndex:
    def __init__(self) -> None:
        self._tables: dict[type[Pattern], ExactTable] = {
            Exact: ExactTable(),
            Prefix: PrefixTable(),
            Contains: ContainsTable(),
        }
        self._everything: Subscribers = {}
        self._audiences: Audiences = Audiences()
        self.limited = False
        """Whether any subscriber is restricted by `may_receive`."""

    def add(self, subscriber: Subscriber, pattern: Pattern, encoder: Encoder) -> None:
        if isinstance(pattern, Everything):
            self._everything[subscriber] = encoder
        else:
            self._tables[type(pattern)].put(pattern.value)[subscriber] = encoder

    def remove(self, subscriber: Subscriber, pattern: Pattern) -> None:
        """The subscription must exist."""
        if isinstance(pattern, Everything):
            del self._everything[subscriber]
            return
        table = self._tables[type(pattern)]
        subscribers = table.get(pattern.value)
        assert subscribers is not None
        del subscribers[subscriber]
        if not subscribers:
            table.drop(pattern.value)

    def match(self, topic: str, over: PatternIndex | None = None) -> Audience:
        """Every subscriber with a matching pattern, once. Encoders found in `over` take precedence."""
        found = self._find(topic)
        if over:
            found.update(over._find(topic))
        if self.limited:
            found = {
                each: encoder
                for each, encoder in found.items()
                if each.may_receive is None or each.may_receive(topic)
            }
        return intern(self._audiences, found.items())

    def _find(self, topic: str) -> Subscribers:
        reserved = topic.startswith(RESERVED_PREFIX)
        found: Subscribers = {} if reserved else dict(self._everything)
        for table in self._tables.values():
            for value, subscribers in table.find(topic):
                if not reserved or value.startswith(RESERVED_PREFIX):
                    found.update(subscribers)
        return found
