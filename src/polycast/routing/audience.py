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


class Subscriber:
    """A connection, as routing sees it. `owner` is opaque here."""

    __slots__ = ("committed", "echo", "has_right", "link", "may_receive", "owner", "patterns")

    def __init__(self, owner: Any, echo: bool = True, link: bool = False) -> None:
        self.owner = owner
        self.echo = echo
        self.link = link
        self.patterns: dict[Pattern, Encoder] = {}
        self.committed = False
        """Whether it gets messages only when they are durable. Set before its first subscription."""
        self.may_receive: Callable[[str], bool] | None = None
        """Restricts the topics that match its patterns; None: no restriction. Set by `Router.limit`."""
        self.has_right: Callable[[str], bool] = lambda topic: True
        """Whether the subscriber has the right to this topic, whatever name a message is delivered under."""


Member = tuple[Subscriber, Encoder]


class Audience:
    __slots__ = ("__weakref__", "_local", "committed", "groups", "live", "members")

    def __init__(self, members: frozenset[Member]) -> None:
        self.members = members
        self.groups = self.live = _by_encoder(members)
        """The subscribers of each encoder: encode once, deliver to all."""
        self.committed: Groups = ()
        """The groups of subscribers that get messages only when they are durable; `live` are the others."""
        if any(subscriber.committed for subscriber, _ in members):
            self.committed = _by_encoder(member for member in members if member[0].committed)
            self.live = _by_encoder(member for member in members if not member[0].committed)
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


Groups = tuple[tuple[Encoder, tuple[Subscriber, ...]], ...]


def _by_encoder(members: Iterable[Member]) -> Groups:
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


Audiences = WeakValueDictionary[frozenset[Member], Audience]
"""The intern table. It holds weak references: unused audiences disappear."""


def intern(audiences: Audiences, members: Iterable[Member]) -> Audience:
    key = frozenset(members)
    audience = audiences.get(key)
    if audience is None:
        audience = audiences[key] = Audience(key)
    return audience
