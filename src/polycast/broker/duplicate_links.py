"""Duplicate links to one broker: chooses the link to close and the link to subscribe on.

The id that a broker sends is public and unproven. Decisions therefore rest on what this broker knows by itself:

- A link is closed only in favour of a link with the same identity. Both ends keep the same one: the link that the
  broker with the smaller id dialled. Of two links that this broker dialled, it closes the less trusted one: an
  announced address cannot close the link to a configured one.
- Of the links with the same id, this broker subscribes only at the preferred ones, so that no message arrives
  twice. The other links stay open: the other end may have subscriptions there.

A peer that sends the id of another broker closes the link of that broker only if both have the same identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from polycast.routing import Subscriber


@dataclass(slots=True)
class LinkState:
    dialed: bool
    identity: str = ""
    """The authenticated identity of the other end."""
    trust: int = 0
    """How much the id that the other end sends is trusted, compared with other links."""
    subscribed: set[str] = field(default_factory=set)
    """The subscriptions of this broker at the other end."""
    node: str = ""
    """The id that the other end sent."""
    passive: bool = False
    """Another link with the same id is preferred: no subscriptions here."""

    @property
    def preference(self) -> tuple[int, bool]:
        return self.trust, self.dialed


LinkStates = dict[Subscriber, LinkState]


def links_to_close(links: LinkStates, one: Subscriber, own: str) -> Iterator[tuple[Subscriber, Subscriber]]:
    """Links to close after this link sent its id, each with the duplicate that stays.

    The broker that dialled a link closes it. Of two links that it dialled, it keeps the more trusted one, or else
    the older one.
    """
    link = links[one]
    for two, other in list(links.items()):
        if two is one or not link.node or (other.node, other.identity) != (link.node, link.identity):
            continue
        keeps_theirs = link.node < own
        if link.dialed and other.dialed:
            closes_one = link.trust <= other.trust
        elif keeps_theirs and (link.dialed or other.dialed):
            closes_one = link.dialed
        else:
            continue
        closed, remaining = (one, two) if closes_one else (two, one)
        links[closed].node = ""  # no longer a duplicate of any link
        yield closed, remaining


def update_preferred(links: LinkStates, node: str) -> LinkStates:
    """Compares the links with this id, and returns those that became passive or active."""
    same = {subscriber: link for subscriber, link in links.items() if node and link.node == node}
    highest = max((link.preference for link in same.values()), default=None)
    changed: LinkStates = {}
    for subscriber, link in same.items():
        passive = link.preference != highest
        if passive != link.passive:
            link.passive = passive
            changed[subscriber] = link
    return changed
