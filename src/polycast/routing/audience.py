"""Audiences: the subscribers of a topic, each with its encoder.

Audiences are interned: topics with the same subscribers share one object, so that comparing the audiences of two
messages is one comparison of identities, and consecutive messages of one audience stay one slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from polycast.model import Encoder, Pattern


def _has_every_right(topic: str) -> bool:
    return True


class Subscriber:
    """A connection, as routing sees it. `owner` is opaque here."""

    __slots__ = ("echo", "has_right", "link", "may_receive", "owner", "patterns")

    def __init__(self, owner: Any, echo: bool = True, link: bool = False) -> None:
        self.owner = owner
        self.echo = echo
        self.link = link
        self.patterns: dict[Pattern, Encoder] = {}
        self.may_receive: Callable[[str], bool] | None = None
        """Restricts the topics that match its patterns; None: no restriction. Set by `Router.limit`."""
        self.has_right: Callable[[str], bool] = _has_every_right
        """Whether the subscriber has the right to this topic, whatever name a message is delivered under."""


Member = tuple[Subscriber, Encoder]


class Audience:
    __slots__ = ("__weakref__", "_local", "groups", "members")

    def __init__(self, members: frozenset[Member]) -> None:
        self.members = members
        self.groups = _by_encoder(members)
        """The subscribers of each encoder: encode once, deliver to all."""
        self._local: Audience | None = None

    def __bool__(self) -> bool:
        return bool(self.members)

    @property
    def local(self) -> Audience:
        """Without the links to other brokers."""
        if self._local is None:
            rest = frozenset(member for member in self.members if not member[0].link)
            self._local = self if len(rest) == len(self.members) else Audience(rest)
        return self._local


def _by_encoder(members: Iterable[Member]) -> tuple[tuple[Encoder, tuple[Subscriber, ...]], ...]:
    groups: dict[Encoder, list[Subscriber]] = {}
    for subscriber, encoder in members:
        groups.setdefault(encoder, []).append(subscriber)
    return tuple((encoder, tuple(subscribers)) for encoder, subscribers in groups.items())


@lru_cache(maxsize=256)
def are_disjoint(audiences: frozenset[Audience]) -> bool:
    """Whether no subscriber is in two of them. Audiences are immutable, so the result is cached."""
    seen: set[Subscriber] = set()
    for audience in audiences:
        for _, subscribers in audience.groups:
            before = len(seen)
            seen.update(subscribers)
            if len(seen) < before + len(subscribers):
                return False
    return True


class Audiences:
    """The intern table. It holds weak references: unused audiences disappear."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[frozenset[Member], Audience] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def intern(self, members: Iterable[Member]) -> Audience:
        key = frozenset(members)
        audience = self._known.get(key)
        if audience is None:
            audience = self._known[key] = Audience(key)
        return audience
