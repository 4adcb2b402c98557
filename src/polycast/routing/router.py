"""The router: the pattern index, and what it answered for each topic while that still holds."""

from __future__ import annotations

from collections.abc import Callable

from polycast.model import Encoder, Exact, Pattern
from polycast.routing.audience import Subscriber
from polycast.routing.index import PatternIndex
from polycast.routing.topics import Topic, Topics


class Router:
    def __init__(self, capacity: int = 1_000_000) -> None:
        self._index = PatternIndex()
        self._prevailing = PatternIndex()
        """The subscriptions whose form prevails."""
        self.topics = Topics(capacity)
        self._stamp = 0

    def subscribe(self, subscriber: Subscriber, pattern: Pattern, encoder: Encoder) -> bool:
        """False if nothing changed. A second subscription to one pattern replaces the form of the first."""
        before = subscriber.patterns.get(pattern)
        if before is encoder:
            return False
        if before and before.takes_precedence is not encoder.takes_precedence:
            self._index_of(before).remove(subscriber, pattern)
        subscriber.patterns[pattern] = encoder
        self._index_of(encoder).add(subscriber, pattern, encoder)
        self._outdate(pattern)
        return True

    def unsubscribe(self, subscriber: Subscriber, pattern: Pattern) -> bool:
        encoder = subscriber.patterns.pop(pattern, None)
        if encoder is None:
            return False
        self._index_of(encoder).remove(subscriber, pattern)
        self._outdate(pattern)
        return True

    def limit(self, subscriber: Subscriber, may_hear: Callable[[str], bool] | None) -> None:
        """It gets only these of the topics that its patterns match. To be called again when that changes."""
        if may_hear or subscriber.may_hear:
            subscriber.may_hear = may_hear
            self._index.limited = True
            self._stamp += 1

    def _index_of(self, encoder: Encoder) -> PatternIndex:
        return self._prevailing if encoder.takes_precedence else self._index

    def topic(self, key: bytes) -> Topic:
        """A topic with its audience as of now. A key that is not UTF-8 raises UnicodeDecodeError."""
        return self.refresh(self.topics.use(key))

    def refresh(self, topic: Topic) -> Topic:
        """The same topic, with its audience as of now."""
        if topic.stamp != self._stamp:
            topic.audience = self._index.match(topic.name, over=self._prevailing)
            topic.stamp = self._stamp
        return topic

    def _outdate(self, pattern: Pattern) -> None:
        """An exact pattern concerns one topic; any other outdates all, which costs one addition here."""
        if not isinstance(pattern, Exact):
            self._stamp += 1
            return
        topic = self.topics.get(pattern.value.encode())
        if topic is not None:
            topic.stamp = -1
