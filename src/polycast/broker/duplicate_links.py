"""Two links to one broker: which one is closed, and which one is asked for messages.

The id that a broker says is a claim, and not secret. What decides is therefore what this broker knows by itself:

- A link is given up only for one of the same identity. Both ends keep the same link: the one that the smaller id
  dialed.
- Of links that say the same id, only those of the highest rank are asked for anything, so that nothing comes
  twice. The others stay open: the other end may have asked for something there.

A peer that says the id of another broker costs that broker its link only if both have the same identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from polycast.routing import Subscriber


@dataclass(slots=True)
class Link:
    dialed: bool
    identity: str = ""
    """By which this broker knows the other end."""
    trust: int = 0
    """How far the id that the other end says is believed, compared with that of others."""
    asked: set[str] = field(default_factory=set)
    """What we asked for at the other end."""
    node: str = ""
    """The id that the other end says."""
    outranked: bool = False
    """Whether another link is asked instead."""

    @property
    def rank(self) -> tuple[int, bool]:
        return self.trust, self.dialed


Links = dict[Subscriber, Link]


def to_give_up(links: Links, one: Subscriber, own: str) -> Iterator[tuple[Subscriber, Subscriber]]:
    """Links to close, each with its twin: this link has just said its id, and others said the same.

    Whoever dialed a link closes it; of two that the same broker dialed, that broker keeps the older one.
    """
    link = links[one]
    for two, other in list(links.items()):
        if two is one or not link.node or (other.node, other.identity) != (link.node, link.identity):
            continue
        keeps_theirs = link.node < own
        if link.dialed and (other.dialed or keeps_theirs):
            link.node = ""  # it is nobody's twin any more
            yield one, two
        elif other.dialed and keeps_theirs:
            other.node = ""
            yield two, one


def rank(links: Links, node: str) -> Links:
    """Compares the links that say this id, and returns those that are outranked now or are not any more."""
    same = {subscriber: link for subscriber, link in links.items() if node and link.node == node}
    highest = max((link.rank for link in same.values()), default=None)
    changed: Links = {}
    for subscriber, link in same.items():
        outranked = link.rank != highest
        if outranked != link.outranked:
            link.outranked = outranked
            changed[subscriber] = link
    return changed
