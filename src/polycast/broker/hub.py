"""The hub: subscriptions in, deliveries out.

A delivery is a value; the server carries it out. The unit is the slice: consecutive messages of one burst with one
audience. Slices of one audience form one delivery where that changes the order for no subscriber.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

from polycast.model import Burst, Encoder, PackedSlices, Pattern, Slices
from polycast.routing import Audience, Router, Subscriber, Topic, Topics, are_disjoint, group


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
        """The deliveries of a numbered burst; `topics` has the topic of each run.

        A burst from a link goes to local subscribers only; a local burst goes to links as well.
        """
        router = self.router
        grouped = group(topics, burst.run_ends, router.version, router.refresh, origin.link)
        skip = None if origin.echo else origin
        return [Delivery(audience, burst, slices, skip) for audience, slices in in_order(grouped)]


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


def in_order(grouped: list[tuple[Audience, PackedSlices]]) -> Iterable[tuple[Audience, Slices]]:
    """One slice at a time where a subscriber is in two audiences: its messages must stay in order."""
    audiences = frozenset([audience for audience, _ in grouped])
    if all(len(slices) == 1 for _, slices in grouped) or are_disjoint(audiences):
        return grouped
    stretches = [(start, stop, audience) for audience, slices in grouped for start, stop in slices]
    return [(audience, [(start, stop)]) for start, stop, audience in sorted(stretches, key=itemgetter(0))]
