"""The mesh: subscriptions and forwarding between brokers that are linked by `simplest`.

A link is a connection to another broker. Messages of local publishers go to the links that subscribed to them;
messages from a link go to local subscribers. With forwarding, they also go to other links, under a second name:

    direct      //X   or   X        as the publisher sent it
    forwarded   //fwd/X             the same message, forwarded by a broker

Every local subscriber whose subscriptions match either name gets the message once: under the name it arrived with
if that matches, otherwise under the other. A link gets the direct name from the broker of the publisher, and the
forwarded name from all other brokers, never both.

At each link this broker subscribes to the patterns of its clients, under both names. A broker that forwards
between two or more links subscribes to everything: it does not know the subscriptions behind the other links.
Propagating the subscriptions of links was tried and rejected: in a ring of brokers they keep each other alive, or
chase each other.

Messages have no id. To stop loops, a broker remembers (forwarded name, sha1 of the data) for some seconds, and
neither delivers nor forwards a forwarded copy that it remembers. Of identical messages within that time, only the
first one travels further than one link.

Two brokers need one link, and a broker needs none to itself. To detect both, the dialling broker sends its id as a
subscription that matches nothing, `polycast/node/<id>`; a Polycast broker at the other end responds likewise. The
id is unproven: see `duplicate_links`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha1
from itertools import groupby
from typing import NamedTuple

from polycast.broker.duplicate_links import LinkState, links_to_close, update_preferred
from polycast.broker.forwarded_cache import ForwardedCache, Key
from polycast.broker.hub import Delivery, Hub, readable_parts
from polycast.model import RESERVED_PREFIX, Burst, Contains, Pattern
from polycast.routing import Audience, Subscriber

FORWARDED = "//fwd/"
NODE = RESERVED_PREFIX + "node/"
EVERYTHING = ""


class SubscribeAt(NamedTuple):
    """Subscribe at the other end of this link to topics that contain `text`."""

    link: Subscriber
    text: str


class UnsubscribeAt(NamedTuple):
    link: Subscriber
    text: str


class CloseLink(NamedTuple):
    """Close this link: `duplicate` leads to the same broker; if None, the link leads to this broker itself."""

    link: Subscriber
    duplicate: Subscriber | None = None


Effect = SubscribeAt | UnsubscribeAt | CloseLink


def to_forwarded(topic: bytes) -> bytes:
    if topic.startswith(FORWARDED.encode()):
        return topic
    return FORWARDED.encode() + topic.removeprefix(b"//")


def to_direct(topic: bytes) -> tuple[bytes, ...]:
    """The names that a forwarded message may have been published under: `//fwd/X` was `//X` or `X`."""
    rest = topic.removeprefix(FORWARDED.encode())
    return (b"//" + rest, rest) if rest and not rest.startswith(RESERVED_PREFIX.encode()) else ()


def second_names(topic: bytes) -> tuple[bytes, ...]:
    """The other names of a message with this topic. Topics of the broker itself have one name."""
    if topic.startswith(RESERVED_PREFIX.encode()):
        return ()
    forwarded = to_forwarded(topic)
    return to_direct(topic) if forwarded == topic else (forwarded,)


def to_texts(pattern: Pattern, forward: bool) -> tuple[str, ...]:
    """The substrings to subscribe to at a link for this pattern; they may match more topics.

    For both names of a message, the direct name comes first.
    """
    text = pattern.value
    if text.startswith(RESERVED_PREFIX) or "\n" in text or text.endswith("\r"):
        return ()
    if forward and text.startswith(FORWARDED):
        return "//" + text.removeprefix(FORWARDED), text
    if forward and text.startswith("//"):
        return text, FORWARDED + text.removeprefix("//")
    return (text,)


class ForwardDecision(NamedTuple):
    deliver: bool
    forward: bool


class Plan(NamedTuple):
    """A burst before it has its offsets."""

    bursts: list[Burst]
    """To be numbered in this order; copies under other names follow the original."""
    deliveries: list[Delivery] | None
    """None: to the audience of each topic when the burst is applied."""
    accepted: int
    unreadable: int = 0
    """How many messages have a topic that is not UTF-8."""


class Mesh:
    def __init__(
        self, hub: Hub, node: str, forward: bool = False, seconds: float = 10.0, messages: int = 65_536
    ) -> None:
        self._hub = hub
        self._node = node
        self.forwards = forward
        """Whether messages may be delivered under other names as well."""
        self._cache = ForwardedCache(seconds, messages)
        self._links: dict[Subscriber, LinkState] = {}
        self._interest: Counter[str] = Counter()
        """The number of local subscriptions for each text."""
        self.suppressed = 0

    @property
    def active(self) -> bool:
        return bool(self._links)

    @property
    def forgotten(self) -> int:
        """Messages evicted early from the cache of forwarded messages."""
        return self._cache.forgotten

    # -- subscriptions -----------------------------------------------------------------------------------

    def add_interest(self, patterns: Iterable[Pattern]) -> None:
        """Subscribes at every link for the broker itself, under both names even without forwarding."""
        for pattern in patterns:
            self._interest.update(to_texts(pattern, forward=True))

    def join(self, link: Subscriber, dialed: bool, identity: str = "", trust: int = 0) -> list[Effect]:
        self._links[link] = LinkState(dialed, identity, trust)
        introduction: list[Effect] = [SubscribeAt(link, NODE + self._node)] if dialed else []
        return introduction + self._update_subscriptions((*self._interest, EVERYTHING))

    def set_trust(self, link: Subscriber, trust: int) -> list[Effect]:
        """After the rights of the link changed."""
        self._links[link].trust = trust
        return self._update_preferred(self._links[link].node)

    def leave(self, subscriber: Subscriber, patterns: list[Pattern]) -> list[Effect]:
        if link := self._links.pop(subscriber, None):
            return [*self._update_preferred(link.node), *self._update_subscriptions((EVERYTHING,))]
        return [effect for pattern in patterns for effect in self.unsubscribed(subscriber, pattern)]

    def subscribed(self, subscriber: Subscriber, pattern: Pattern) -> list[Effect]:
        link = self._links.get(subscriber)
        if link is None:
            return self._change_interest(pattern, 1)
        if isinstance(pattern, Contains) and pattern.value.startswith(NODE):
            return self._identify(subscriber, link, pattern.value.removeprefix(NODE))
        return []

    def unsubscribed(self, subscriber: Subscriber, pattern: Pattern) -> list[Effect]:
        return [] if subscriber in self._links else self._change_interest(pattern, -1)

    def _change_interest(self, pattern: Pattern, step: int) -> list[Effect]:
        texts = to_texts(pattern, self.forwards)
        for text in texts:
            self._interest[text] += step
            if not self._interest[text]:
                del self._interest[text]
        return self._update_subscriptions(texts)

    def _update_preferred(self, node: str) -> list[Effect]:
        """After a link with this id opened, closed, or changed its trust."""
        changed = update_preferred(self._links, node)
        return self._update_subscriptions((*self._interest, EVERYTHING), changed) if changed else []

    def _update_subscriptions(
        self, texts: tuple[str, ...], links: dict[Subscriber, LinkState] | None = None
    ) -> list[Effect]:
        """Subscribes and unsubscribes at each link, as these texts have local subscriptions or not."""
        forwards_all = self.forwards and len(self._links) > 1
        effects: list[Effect] = []
        for subscriber, link in (self._links if links is None else links).items():
            for text in texts:
                wanted = not link.passive and (text in self._interest or (forwards_all and text == EVERYTHING))
                if wanted and text not in link.subscribed:
                    link.subscribed.add(text)
                    effects.append(SubscribeAt(subscriber, text))
                elif not wanted and text in link.subscribed:
                    link.subscribed.remove(text)
                    effects.append(UnsubscribeAt(subscriber, text))
        return effects

    def _identify(self, subscriber: Subscriber, link: LinkState, node: str) -> list[Effect]:
        if not node or link.node:
            return []
        effects: list[Effect] = [] if link.dialed else [SubscribeAt(subscriber, NODE + self._node)]
        link.node = node
        if node == self._node:
            return [*effects, CloseLink(subscriber)] if link.dialed else effects
        effects += [CloseLink(*pair) for pair in links_to_close(self._links, subscriber, self._node)]
        return effects + self._update_preferred(node)

    # -- forwarding --------------------------------------------------------------------------------------

    def plan(self, burst: Burst, origin: Subscriber, now: float) -> Plan:
        """Which messages of a burst are published, and under which names."""
        if not self.forwards:
            parts = readable_parts(burst)
            return Plan(parts, None, sum(map(len, parts)), len(burst) - sum(map(len, parts)))
        deliveries: list[Delivery] = []
        bursts: list[Burst] = []
        accepted = readable = 0
        for part in readable_parts(burst):
            readable += len(part)
            for decision, messages in groupby(range(len(part)), self._decisions(part, origin, now).__getitem__):
                indices = list(messages)
                if decision.deliver:
                    run = part.cut(indices[0], indices[-1] + 1)
                    spread = [
                        each
                        for piece in run.runs()
                        for each in self._spread(run, *piece, origin, decision.forward)
                    ]
                    deliveries += spread
                    bursts += [run, *(each.burst for each in spread if each.burst is not run)]
                    accepted += len(run)
        self.suppressed += readable - accepted
        return Plan(bursts, deliveries, accepted, len(burst) - readable)

    def _decisions(self, burst: Burst, origin: Subscriber, now: float) -> list[ForwardDecision]:
        view = memoryview(burst.block)
        decisions: list[ForwardDecision] = []
        for run, first, last in burst.runs():
            topic = burst.topics[run]
            name = to_forwarded(topic)
            for i in range(first, last):
                key = (name, sha1(view[burst.starts[i] : burst.ends[i]], usedforsecurity=False).digest())
                decisions.append(self._decide(key, name == topic, origin, now))
        return decisions

    def _decide(self, key: Key, forwarded: bool, origin: Subscriber, now: float) -> ForwardDecision:
        seen = self._cache.seen(key, now)
        if origin.link and forwarded and seen:
            return ForwardDecision(deliver=False, forward=False)
        if origin.link and not forwarded and self._cache.take_direct(key, now):
            return ForwardDecision(deliver=False, forward=False)
        if not seen:
            self._cache.add(key, now, awaits_direct=origin.link and forwarded)
        return ForwardDecision(deliver=True, forward=not seen)

    def _spread(
        self, burst: Burst, run: int, first: int, last: int, origin: Subscriber, forward: bool
    ) -> Iterable[Delivery]:
        """A run under its own name, then under its other names for subscribers that are not reached yet."""
        topic = burst.topics[run]
        forwarded = to_forwarded(topic)
        reached: set[Subscriber] = set() if origin.echo else {origin}
        for name in (topic, *second_names(topic)):
            links = (name == forwarded and forward) or (name == topic and not origin.link)
            audience = self._hub.router.audience(name)
            ambiguous = name != topic == forwarded  # the message was published under this name or under another
            members = frozenset(
                (subscriber, encoder)
                for subscriber, encoder in audience.members
                if subscriber not in reached
                and (links or not subscriber.link)
                and (not ambiguous or subscriber.has_right(forwarded.decode()))
            )
            if members:
                reached.update(subscriber for subscriber, _ in members)
                if name == topic:
                    yield Delivery(Audience(members), burst, [(first, last)])
                else:
                    copy = burst.cut(first, last).rename([name])
                    yield Delivery(Audience(members), copy, [(0, last - first)])
