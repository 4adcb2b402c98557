"""The subscriptions of a client: patterns, and the position of each in the broker's log.

Live messages arrive in the order of the log, so all live subscriptions have come as far as the last live message.
A subscription that starts with a replay arrives independently, and it alone delivers its topics from then on.
After a reconnect one replay serves all subscriptions, from the earliest position on; messages before `floor` are
repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from polycast.model import Exact, Message, Pattern, StartPosition

StartFrom = StartPosition | Literal["latest"]
"""Where in the broker's log a subscription starts."""

TOPICS_AT_MOST = 10_000
"""Topics whose subscriptions are cached."""


@dataclass(slots=True, eq=False)
class ClientSubscription:
    patterns: list[Pattern]
    start: StartFrom | None = None
    next: int | None = None
    """The offset from which on messages are still to come; None: not known."""
    alone: bool = False
    """Whether its messages arrive independently of other subscriptions."""
    was_alone: bool = False
    """Before the last reconnect."""
    floor: int = 0
    """`next` at the last reconnect. Messages before it are repeats, or from before the subscription."""
    in_force: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.start, StartPosition):
            self.alone, self.next = True, self.start.offset


class Matched(NamedTuple):
    """What a message on a topic means for the subscriptions."""

    advancing: tuple[ClientSubscription, ...]
    floor: int


class ResumePoint(NamedTuple):
    offset: int
    known: list[Pattern]
    """Patterns that continue at the offset."""
    unknown: list[Pattern]
    """Patterns without a position."""


class ClientSubscriptions:
    def __init__(self, matches: Callable[[Pattern, str], bool]) -> None:
        self._matches = matches
        self._all: list[ClientSubscription] = []
        self._found: dict[str, Matched | None] = {}

    def __iter__(self) -> Iterator[ClientSubscription]:
        return iter(self._all)

    def add(self, subscription: ClientSubscription, in_force: bool = False) -> None:
        subscription.in_force = in_force
        self._all.append(subscription)
        self._found.clear()

    def remove(self, subscription: ClientSubscription) -> None:
        self._all.remove(subscription)
        self._found.clear()

    def confirm(self, subscription: ClientSubscription, log_next: int | None) -> None:
        """`log_next`: the end of the log, where live messages begin, if the broker sent it."""
        subscription.in_force = True
        if subscription.next is None and not subscription.alone:
            subscription.next = log_next
        self._found.clear()

    # -- messages ----------------------------------------------------------------------------------------

    def take(self, message: Message) -> bool:
        """Whether the message is wanted and new."""
        matched = self._of(message.topic)
        if matched is None or message.offset is None:
            return matched is not None
        for each in matched.advancing:
            if each.next is None or message.offset >= each.next:
                each.next = message.offset + 1
        return message.offset >= matched.floor

    def skip(self, first: int, after: int) -> None:
        """The broker cannot deliver the messages from `first` up to `after`."""
        for each in self._all:
            if each.next is not None and first <= each.next < after:
                each.next = after

    def _of(self, topic: str) -> Matched | None:
        if topic not in self._found:
            if len(self._found) >= TOPICS_AT_MOST:
                self._found.clear()
            self._found[topic] = self._find(topic)
        return self._found[topic]

    def _find(self, topic: str) -> Matched | None:
        matching = [each for each in self._all if any(self._matches(pattern, topic) for pattern in each.patterns)]
        if not matching:
            return None
        confirmed = [each for each in matching if each.in_force]
        alone = [each for each in confirmed if each.alone]
        live = [each for each in self._all if each.in_force and not each.alone]
        decisive = [each for each in confirmed if each.was_alone] or confirmed
        return Matched(tuple(alone or live), min([each.floor for each in decisive], default=0))

    # -- reconnects --------------------------------------------------------------------------------------

    def resume(self) -> ResumePoint:
        """Where the subscriptions continue, except those that start in the past and have received nothing."""
        known = [each for each in self._all if each.next is not None]
        for each in known:
            each.was_alone, each.alone = each.was_alone or each.alone, False
            each.floor = each.next or 0
        self._found.clear()
        unknown = [each for each in self._all if each.next is None and not each.alone]
        return ResumePoint(min([each.floor for each in known], default=0), _patterns(known), _patterns(unknown))


def _patterns(subscriptions: list[ClientSubscription]) -> list[Pattern]:
    """Without topics that another pattern matches: two replays would deliver them twice."""
    patterns = list(dict.fromkeys(pattern for each in subscriptions for pattern in each.patterns))
    wide = [pattern for pattern in patterns if not isinstance(pattern, Exact)]
    exact = [pattern for pattern in patterns if isinstance(pattern, Exact)]
    return wide + [topic for topic in exact if not any(pattern.matches(topic.value) for pattern in wide)]
