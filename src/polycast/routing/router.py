"""The router: the pattern index, with the audience of each topic cached until subscriptions change."""

from __future__ import annotations

from collections.abc import Callable

from polycast.model import Encoder, Exact, Pattern
from polycast.routing.audience import Audience, Subscriber
from polycast.routing.index import PatternIndex
from polycast.routing.runs import Topic
from polycast.routing.topics import Topics


class Router:
    def __init__(self, topics: Topics) -> None:
        self._index = PatternIndex()
        self._precedence = PatternIndex()
        """Subscriptions whose encoder takes precedence."""
        self.topics = topics
        self.version = 0
        """Changes when an audience may have changed."""

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
            self.version += 1

    def _index_of(self, encoder: Encoder) -> PatternIndex:
        return self._precedence if encoder.takes_precedence else self._index

    def audience(self, key: bytes) -> Audience:
        """The current audience of a topic. A lookup does not count as use of the topic, and creates none."""
        topic = self.topics.get(key)
        return self._match(key.decode()) if topic is None else self.refresh(topic).audience

    def refresh(self, topic: Topic) -> Topic:
        """The same topic, with its current audience."""
        if topic.index_version != self.version:
            topic.audience = self._match(topic.name)
            topic.index_version = self.version
        return topic

    def _match(self, name: str) -> Audience:
        return self._index.match(name, over=self._precedence)

    def _invalidate(self, pattern: Pattern) -> None:
        """An exact pattern invalidates one topic; any other pattern all topics, by a new version."""
        if not isinstance(pattern, Exact):
            self.version += 1
            return
        topic = self.topics.get(pattern.value.encode())
        if topic is not None:
            topic.index_version = -1
