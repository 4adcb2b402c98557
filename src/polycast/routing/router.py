"""The router: the pattern index, with the audience of each topic cached until subscriptions change."""

from __future__ import annotations

from collections.abc import Callable

from polycast.model import Encoder, Exact, Pattern
from polycast.routing.audience import Subscriber
from polycast.routing.index import PatternIndex
from polycast.routing.topics import Topic, Topics


class Router:
    def __init__(self, capacity: int = 1_000_000) -> None:
        self._index = PatternIndex()
        self._precedence = PatternIndex()
        """Subscriptions whose encoder takes precedence."""
        self.topics = Topics(capacity)
        self._version = 0

    def subscribe(self, subscriber: Subscriber, pattern: Pattern, encoder: Encoder) -> bool:
        """False if nothing changed. A second subscription to one pattern replaces the encoder of the first."""
        before = subscriber.patterns.get(pattern)
        if before is encoder:
            return False
        if before and before.takes_precedence is not encoder.takes_precedence:
            self._index_of(before).remove(subscriber, pattern)
        subscriber.patterns[pattern] = encoder
        self._index_of(encoder).add(subscriber, pattern, encoder)
        self._invalidate(pattern)
        return True

    def unsubscribe(self, subscriber: Subscriber, pattern: Pattern) -> bool:
        encoder = subscriber.patterns.pop(pattern, None)
        if encoder is None:
            return False
        self._index_of(encoder).remove(subscriber, pattern)
        self._invalidate(pattern)
        return True

    def limit(self, subscriber: Subscriber, may_receive: Callable[[str], bool] | None) -> None:
        """Restricts the topics of a subscriber. To be called again when the restriction changes."""
        if may_receive or subscriber.may_receive:
            subscriber.may_receive = may_receive
            self._index.limited = True
            self._version += 1

    def _index_of(self, encoder: Encoder) -> PatternIndex:
        return self._precedence if encoder.takes_precedence else self._index

    def topic(self, key: bytes) -> Topic:
        """A topic with its current audience. A key that is not UTF-8 raises UnicodeDecodeError."""
        return self.refresh(self.topics.use(key))

    def refresh(self, topic: Topic) -> Topic:
        """The same topic, with its current audience."""
        if topic.index_version != self._version:
            topic.audience = self._index.match(topic.name, over=self._precedence)
            topic.index_version = self._version
        return topic

    def _invalidate(self, pattern: Pattern) -> None:
        """An exact pattern invalidates one topic; any other pattern all topics, by a new version."""
        if not isinstance(pattern, Exact):
            self._version += 1
            return
        topic = self.topics.get(pattern.value.encode())
        if topic is not None:
            topic.index_version = -1
