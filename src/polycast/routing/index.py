"""The pattern index: subscriptions in, the audience of a topic out. It remembers nothing; `Router` does."""

from __future__ import annotations

from polycast.model import RESERVED_PREFIX, Contains, Encoder, Everything, Exact, Pattern, Prefix
from polycast.routing.audience import Audience, Audiences, Subscriber
from polycast.routing.shelves import ContainsShelf, ExactShelf, PrefixShelf, Takers


class PatternIndex:
    def __init__(self) -> None:
        self._shelves: dict[type[Pattern], ExactShelf] = {
            Exact: ExactShelf(),
            Prefix: PrefixShelf(),
            Contains: ContainsShelf(),
        }
        self._everything: Takers = {}
        self._audiences = Audiences()
        self.limited = False
        """Whether there are subscribers that may not get all that matches."""

    def add(self, subscriber: Subscriber, pattern: Pattern, encoder: Encoder) -> None:
        if isinstance(pattern, Everything):
            self._everything[subscriber] = encoder
        else:
            self._shelves[type(pattern)].put(pattern.value)[subscriber] = encoder

    def remove(self, subscriber: Subscriber, pattern: Pattern) -> None:
        """The subscription must be there."""
        if isinstance(pattern, Everything):
            del self._everything[subscriber]
            return
        shelf = self._shelves[type(pattern)]
        takers = shelf.get(pattern.value)
        assert takers is not None
        del takers[subscriber]
        if not takers:
            shelf.drop(pattern.value)

    def match(self, topic: str, over: PatternIndex | None = None) -> Audience:
        """Every subscriber with a matching pattern, once. What is found in `over` has the last word."""
        found = self._find(topic)
        if over:
            found.update(over._find(topic))
        if self.limited:
            found = {
                each: encoder for each, encoder in found.items() if each.may_hear is None or each.may_hear(topic)
            }
        return self._audiences.intern(found.items())

    def _find(self, topic: str) -> Takers:
        reserved = topic.startswith(RESERVED_PREFIX)
        found: Takers = {} if reserved else dict(self._everything)
        for shelf in self._shelves.values():
            for value, takers in shelf.find(topic):
                if not reserved or value.startswith(RESERVED_PREFIX):
                    found.update(takers)
        return found
