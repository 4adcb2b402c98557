"""The hub: who subscribed to what is known here; it gives messages their sequence, and says who gets them.

What it decides comes back as values; somebody else does it. The unit is the slice: consecutive messages of one
burst with one audience. Slices of one audience are kept together where no subscriber can tell the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from polycast.model import Burst, Encoder, Pattern, Slices
from polycast.routing import Audience, Router, Subscriber, Topic, are_disjoint


class Delivery(NamedTuple):
    """These slices go to this audience, less the one that said them."""

    audience: Audience
    burst: Burst
    slices: Slices
    skip: Subscriber | None = None


class Publication(NamedTuple):
    deliveries: list[Delivery]
    bursts: list[Burst]
    """What was accepted, numbered, in the order of its offsets; also under the other names it goes by."""
    accepted: int
    refused: int = 0
    """How many had a topic that is not UTF-8."""


class Hub:
    def __init__(self, topics: int = 1_000_000) -> None:
        self.router = Router(topics)
        self.next_offset = 0

    def join(self, owner: Any, echo: bool = True, link: bool = False) -> Subscriber:
        return Subscriber(owner, echo, link)

    def leave(self, subscriber: Subscriber) -> list[Pattern]:
        """Ends all of its subscriptions, and says which they were.

        Audiences that were found before may know it until they are outdated; its owner is free at once.
        """
        patterns = list(subscriber.patterns)
        for pattern in patterns:
            self.router.unsubscribe(subscriber, pattern)
        subscriber.owner = None
        return patterns

    def subscribe(self, subscriber: Subscriber, pattern: Pattern, encoder: Encoder) -> bool:
        """Whether this is a new subscription."""
        new = pattern not in subscriber.patterns
        self.router.subscribe(subscriber, pattern, encoder)
        return new

    def unsubscribe(self, subscriber: Subscriber, pattern: Pattern) -> bool:
        """Whether there was such a subscription."""
        return self.router.unsubscribe(subscriber, pattern)

    def publish(self, burst: Burst, origin: Subscriber) -> Publication:
        try:
            topics = self.topics(burst)
        except UnicodeDecodeError:
            return self._publish_readable(burst, origin)
        self.number(burst, topics)
        return Publication(_deliveries(burst, topics, origin), [burst], len(burst))

    def topics(self, burst: Burst) -> list[Topic]:
        """The topic of each run. A topic that is not UTF-8 raises UnicodeDecodeError."""
        return [self.router.topic(key) for key in burst.topics]

    def number(self, burst: Burst, topics: list[Topic]) -> None:
        """Gives every message its offset, and the next sequence of its topic, whether or not anyone listens."""
        start = 0
        sequences = burst.sequences
        before = self.next_offset - 1
        for topic, end in zip(topics, burst.run_ends, strict=True):
            sequences.append(topic.next_sequence)
            topic.next_sequence += end - start
            topic.last_offset = before + end
            start = end
        burst.offset = self.next_offset
        self.next_offset += start
        self.router.topics.trim()

    def number_bulk(self, names: list[bytes], counts: list[int], lasts: list[int]) -> tuple[int, list[int]]:
        """The same for messages that come topic by topic: so many of each, the last of them at that place.

        Returns the offset of the first message, and the sequence that each topic begins with.
        """
        offset, sequences = self.next_offset, []
        for name, count, last in zip(names, counts, lasts, strict=True):
            topic = self.router.topics.use(name)
            sequences.append(topic.next_sequence)
            topic.next_sequence += count
            topic.last_offset = offset + last
        self.next_offset += sum(counts)
        self.router.topics.trim()
        return offset, sequences

    def _publish_readable(self, burst: Burst, origin: Subscriber) -> Publication:
        """Leaves out the runs whose topic is not UTF-8, and publishes the rest."""
        publications = [self.publish(part, origin) for part in readable_parts(burst)]
        accepted = sum(publication.accepted for publication in publications)
        return Publication(
            [delivery for publication in publications for delivery in publication.deliveries],
            [part for publication in publications for part in publication.bursts],
            accepted,
            refused=len(burst) - accepted,
        )


def readable_parts(burst: Burst) -> list[Burst]:
    """The burst without the runs whose topic is not UTF-8: the stretches between them."""
    return parts_where(burst, _is_utf8)


def parts_where(burst: Burst, wanted: Callable[[bytes], bool]) -> list[Burst]:
    """The stretches of a burst whose topics are wanted."""
    parts: list[Burst] = []
    begin = 0
    for run, first, last in burst.runs():
        if not wanted(burst.topics[run]):
            parts += [burst.cut(begin, first)] if first > begin else []
            begin = last
    return parts + ([burst.cut(begin, len(burst))] if begin < len(burst) else [])


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _deliveries(burst: Burst, topics: list[Topic], origin: Subscriber) -> list[Delivery]:
    """What came over a link goes to local subscribers; what came from here goes to links as well."""
    skip = None if origin.echo else origin
    stretches = _stretches(burst, topics)
    if origin.link:
        stretches = [(audience.local, begin, end) for audience, begin, end in stretches if audience.local]
    return [Delivery(audience, burst, slices, skip) for audience, slices in _gather(stretches)]


Stretch = tuple[Audience, int, int]


def _stretches(burst: Burst, topics: list[Topic]) -> list[Stretch]:
    """Consecutive messages with one audience, where there is anyone to hear them."""
    stretches: list[Stretch] = []
    begin = start = 0
    current = topics[0].audience
    for topic, end in zip(topics, burst.run_ends, strict=True):
        if topic.audience is not current:
            if current.members:
                stretches.append((current, begin, start))
            current, begin = topic.audience, start
        start = end
    if current.members:
        stretches.append((current, begin, start))
    return stretches


def _gather(stretches: list[Stretch]) -> list[tuple[Audience, Slices]]:
    """One entry for each audience, as long as nobody can tell: no subscriber may see another order."""
    by_audience: dict[Audience, Slices] = {}
    for audience, begin, end in stretches:
        slices = by_audience.get(audience)
        if slices is None:
            by_audience[audience] = [(begin, end)]
        else:
            slices.append((begin, end))
    if len(by_audience) == len(stretches) or are_disjoint(frozenset(by_audience)):
        return list(by_audience.items())
    return [(audience, [(begin, end)]) for audience, begin, end in stretches]
