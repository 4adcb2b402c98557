"""The hub: subscriptions in, deliveries out.

A delivery is a value; the server carries it out. The unit is the slice: consecutive messages of one burst with one
audience. Slices of one audience form one delivery where that changes the order for no subscriber.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from polycast.model import Burst, Encoder, Pattern, Slices
from polycast.routing import Audience, Router, Subscriber, Topic, Topics, are_disjoint


class Delivery(NamedTuple):
    """These slices go to this audience, except to `skip`, which published them."""

    audience: Audience
    burst: Burst
    slices: Slices
    skip: Subscriber | None = None


class Hub:
    def __init__(self, topics: Topics) -> None:
        self.router = Router(topics)

    def join(self, owner: Any, echo: bool = True, link: bool = False) -> Subscriber:
        return Subscriber(owner, echo, link)

    def leave(self, subscriber: Subscriber) -> list[Pattern]:
        """Ends all subscriptions of a subscriber and returns their patterns.

        Cached audiences may contain the subscriber until they are matched again; its owner is released at once.
        """
        patterns = list(subscriber.patterns)
        for pattern in patterns:
            self.router.unsubscribe(subscriber, pattern)
        subscriber.owner = None
        return patterns

    def subscribe(self, subscriber: Subscriber, pattern: Pattern, encoder: Encoder) -> bool:
        """True for a new subscription, false for another encoder."""
        new = pattern not in subscriber.patterns
        self.router.subscribe(subscriber, pattern, encoder)
        return new

    def unsubscribe(self, subscriber: Subscriber, pattern: Pattern) -> bool:
        """False if there was no such subscription."""
        return self.router.unsubscribe(subscriber, pattern)

    def deliveries(self, burst: Burst, topics: list[Topic], origin: Subscriber) -> list[Delivery]:
        """Who gets a numbered burst; `topics` has the topic of each run.

        A burst from a link goes to local subscribers only; a local burst goes to links as well.
        """
        stretches = _stretches(burst, topics, self.router)
        if origin.link:
            stretches = [(audience.local, start, stop) for audience, start, stop in stretches if audience.local]
        skip = None if origin.echo else origin
        return [Delivery(audience, burst, slices, skip) for audience, slices in _gather(stretches)]


def readable_parts(burst: Burst) -> list[Burst]:
    """The burst without the runs whose topic is not UTF-8."""
    try:
        b"\0".join(burst.topics).decode()
    except UnicodeDecodeError:
        return parts_where(burst, _is_utf8)
    return [burst]


def parts_where(burst: Burst, wanted: Callable[[bytes], bool]) -> list[Burst]:
    """The parts of a burst between the runs whose topics are not wanted."""
    parts: list[Burst] = []
    start = 0
    for run, run_start, run_stop in burst.runs():
        if not wanted(burst.topics[run]):
            parts += [burst.cut(start, run_start)] if run_start > start else []
            start = run_stop
    return parts + ([burst.cut(start, len(burst))] if start < len(burst) else [])


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


Stretch = tuple[Audience, int, int]


def _stretches(burst: Burst, topics: list[Topic], router: Router) -> list[Stretch]:
    """Consecutive messages with one audience, where that is not empty."""
    stretches: list[Stretch] = []
    start = run_start = 0
    version = router.version
    current = router.refresh(topics[0]).audience
    for topic, stop in zip(topics, burst.run_ends, strict=True):
        if topic.index_version != version:
            router.refresh(topic)
        if topic.audience is not current:
            if current.members:
                stretches.append((current, start, run_start))
            current, start = topic.audience, run_start
        run_start = stop
    if current.members:
        stretches.append((current, start, run_start))
    return stretches


def _gather(stretches: list[Stretch]) -> list[tuple[Audience, Slices]]:
    """One entry per audience where no subscriber is in two audiences: the order must stay for each subscriber."""
    by_audience: defaultdict[Audience, Slices] = defaultdict(list)
    for audience, start, stop in stretches:
        by_audience[audience].append((start, stop))
    if len(by_audience) == len(stretches) or are_disjoint(frozenset(by_audience)):
        return list(by_audience.items())
    return [(audience, [(start, stop)]) for audience, start, stop in stretches]
