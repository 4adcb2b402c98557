"""The pattern index: from subscriptions to the audience of a topic. It caches nothing; `Router` does."""

from __future__ import annotations

from polycast.model import RESERVED_PREFIX, Contains, Encoder, Everything, Exact, Pattern, Prefix
from polycast.routing.audience import Audience, Audiences, Subscriber
from polycast.routing.pattern_tables import ContainsTable, ExactTable, PrefixTable, Subscribers


class PatternIndex:
    def __init__(self) -> None:
        self._tables: dict[type[Pattern], ExactTable] = {
            Exact: ExactTable(),
            Prefix: PrefixTable(),
            Contains: ContainsTable(),
        }
        self._everything: Subscribers = {}
        self._audiences = Audiences()
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
        return self._audiences.intern(found.items())

    def _find(self, topic: str) -> Subscribers:
        reserved = topic.startswith(RESERVED_PREFIX)
        found: Subscribers = {} if reserved else dict(self._everything)
        for table in self._tables.values():
            for value, subscribers in table.find(topic):
                if not reserved or value.startswith(RESERVED_PREFIX):
                    found.update(subscribers)
        return found
