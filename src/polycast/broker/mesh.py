"""The mesh: what brokers linked by `simplest` ask of each other, and what they pass on.

A link is a connection to another broker. What local clients publish goes to the links that asked for it; what
comes over a link goes to local clients. With forwarding, it goes on to other links as well, under its second
name:

    direct      //X   or   X        what a client published
    forwarded   //fwd/X             the same, passed on by a broker

Every local client whose subscriptions match either name gets the message once: under the name it came with if
that matches, otherwise under the other. A link gets the direct name from the broker where the message was
published, and the forwarded one from all others, and never both.

Each link is asked for what the clients here want, under both names, and by a broker that can pass things on, which
takes two links, for everything: what is behind the other links, it does not know. Passing on what links ask for
was tried and refused: round a circle of brokers such requests keep each other alive, or chase each other.

Messages carry no id. Loops are cut by remembering (forwarded name, sha1 of the data) for some seconds: a copy
with a forwarded name that is remembered is neither delivered nor passed on. So of identical messages within that
time only the first travels further than to the neighbours.

Two brokers need one link, and a broker none to itself. To notice, the one that dials says who it is with a
subscription that matches nothing, `polycast/node/<id>`; a Polycast at the other end answers likewise. Such an id
is a claim: see `twins`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha1
from itertools import groupby
from typing import NamedTuple

from polycast.broker.duplicate_links import Link, rank, to_give_up
from polycast.broker.forwarded_cache import Key, Memory
from polycast.broker.hub import Delivery, Hub, Publication, readable_parts
from polycast.model import RESERVED_PREFIX, Burst, Contains, Pattern
from polycast.routing import Audience, Subscriber

FORWARDED = "//fwd/"
NODE = RESERVED_PREFIX + "node/"
EVERYTHING = ""


class Ask(NamedTuple):
    """Subscribe at the other end of this link to topics with `text` in them."""

    link: Subscriber
    text: str


class Unask(NamedTuple):
    link: Subscriber
    text: str


class Unlink(NamedTuple):
    """Close this link: `twin` is another one to the same broker; with none, the other end is ourselves."""

    link: Subscriber
    twin: Subscriber | None = None


Effect = Ask | Unask | Unlink


def to_forwarded(topic: bytes) -> bytes:
    if topic.startswith(FORWARDED.encode()):
        return topic
    return FORWARDED.encode() + topic.removeprefix(b"//")


def to_direct(topic: bytes) -> tuple[bytes, ...]:
    """The names a forwarded message may have been published under: `//fwd/X` tells not whether `//X` or `X`."""
    rest = topic.removeprefix(FORWARDED.encode())
    return (b"//" + rest, rest) if rest and not rest.startswith(RESERVED_PREFIX.encode()) else ()


def second_names(topic: bytes) -> tuple[bytes, ...]:
    """What else a message of this topic may be asked for as. What the broker says of itself has one name."""
    if topic.startswith(RESERVED_PREFIX.encode()):
        return ()
    forwarded = to_forwarded(topic)
    return to_direct(topic) if forwarded == topic else (forwarded,)


def to_texts(pattern: Pattern, forward: bool) -> tuple[str, ...]:
    """The substrings to ask a link for, so that all that matches the pattern comes; more may come.

    Where a pattern concerns both names of a message, the direct one is first.
    """
    text = pattern.value
    if text.startswith(RESERVED_PREFIX) or "\n" in text or text.endswith("\r"):
        return ()
    if forward and text.startswith(FORWARDED):
        return "//" + text.removeprefix(FORWARDED), text
    if forward and text.startswith("//"):
        return text, FORWARDED + text.removeprefix("//")
    return (text,)


class Fate(NamedTuple):
    """What is to happen to a message: is it new here, and may it be passed on?"""

    deliver: bool
    forward: bool


class Mesh:
    def __init__(
        self, hub: Hub, node: str, forward: bool = False, seconds: float = 10.0, messages: int = 65_536
    ) -> None:
        self._hub = hub
        self._node = node
        self._forward = forward
        self._memory = Memory(seconds, messages)
        self._links: dict[Subscriber, Link] = {}
        self._wanted: Counter[str] = Counter()
        """How many subscriptions of clients want each text."""
        self.suppressed = 0

    @property
    def active(self) -> bool:
        return bool(self._links)

    @property
    def forgotten(self) -> int:
        """Messages whose copies are not known any more, before the time: too many were passed on."""
        return self._memory.forgotten

    @property
    def forwards(self) -> bool:
        """Whether messages may go by other names as well."""
        return self._forward

    # -- who wants what ----------------------------------------------------------------------------------

    def want(self, patterns: Iterable[Pattern]) -> None:
        """What the broker itself wants of every link, under both names even if it does not forward."""
        for pattern in patterns:
            self._wanted.update(to_texts(pattern, forward=True))

    def join(self, link: Subscriber, dialed: bool, identity: str = "", trust: int = 0) -> list[Effect]:
        self._links[link] = Link(dialed, identity, trust)
        introduction: list[Effect] = [Ask(link, NODE + self._node)] if dialed else []
        return introduction + self._reconsider((*self._wanted, EVERYTHING))

    def leave(self, subscriber: Subscriber, patterns: list[Pattern]) -> list[Effect]:
        if link := self._links.pop(subscriber, None):
            return [*self._rank(link.node), *self._reconsider((EVERYTHING,))]
        return [effect for pattern in patterns for effect in self.unsubscribed(subscriber, pattern)]

    def subscribed(self, subscriber: Subscriber, pattern: Pattern) -> list[Effect]:
        link = self._links.get(subscriber)
        if link is None:
            return self._count(pattern, 1)
        if isinstance(pattern, Contains) and pattern.value.startswith(NODE):
            return self._identify(subscriber, link, pattern.value.removeprefix(NODE))
        return []

    def unsubscribed(self, subscriber: Subscriber, pattern: Pattern) -> list[Effect]:
        return [] if subscriber in self._links else self._count(pattern, -1)

    def _count(self, pattern: Pattern, step: int) -> list[Effect]:
        texts = to_texts(pattern, self._forward)
        for text in texts:
            self._wanted[text] += step
            if not self._wanted[text]:
                del self._wanted[text]
        return self._reconsider(texts)

    def _rank(self, node: str) -> list[Effect]:
        """Links that say this id came or went."""
        changed = rank(self._links, node)
        return self._reconsider((*self._wanted, EVERYTHING), changed) if changed else []

    def _reconsider(self, texts: tuple[str, ...], links: dict[Subscriber, Link] | None = None) -> list[Effect]:
        """Asks each link for what is wanted here, and takes back what is not any more."""
        passes_on = self._forward and len(self._links) > 1
        effects: list[Effect] = []
        for subscriber, link in (self._links if links is None else links).items():
            for text in texts:
                wanted = not link.outranked and (text in self._wanted or (passes_on and text == EVERYTHING))
                if wanted and text not in link.asked:
                    link.asked.add(text)
                    effects.append(Ask(subscriber, text))
                elif not wanted and text in link.asked:
                    link.asked.remove(text)
                    effects.append(Unask(subscriber, text))
        return effects

    def _identify(self, subscriber: Subscriber, link: Link, node: str) -> list[Effect]:
        if not node or link.node:
            return []
        effects: list[Effect] = [] if link.dialed else [Ask(subscriber, NODE + self._node)]
        link.node = node
        if node == self._node:
            return [*effects, Unlink(subscriber)] if link.dialed else effects
        effects += [Unlink(*pair) for pair in to_give_up(self._links, subscriber, self._node)]
        return effects + self._rank(node)

    # -- what is passed on -------------------------------------------------------------------------------

    def publish(self, burst: Burst, origin: Subscriber, now: float) -> Publication:
        if not self._forward:
            return self._hub.publish(burst, origin)
        deliveries: list[Delivery] = []
        bursts: list[Burst] = []
        accepted = readable = 0
        for part in readable_parts(burst):
            readable += len(part)
            for fate, messages in groupby(range(len(part)), self._fates(part, origin, now).__getitem__):
                indices = list(messages)
                if fate.deliver:
                    stretch = part.cut(indices[0], indices[-1] + 1)
                    spread = self._spread(stretch, origin, fate.forward)
                    deliveries += spread
                    bursts += [stretch, *(each.burst for each in spread if each.burst is not stretch)]
                    accepted += len(stretch)
        self.suppressed += readable - accepted
        return Publication(deliveries, bursts, accepted, len(burst) - readable)

    def _fates(self, burst: Burst, origin: Subscriber, now: float) -> list[Fate]:
        view = memoryview(burst.block)
        fates: list[Fate] = []
        for run, first, last in burst.runs():
            topic = burst.topics[run]
            name = to_forwarded(topic)
            for i in range(first, last):
                key = (name, sha1(view[burst.starts[i] : burst.ends[i]], usedforsecurity=False).digest())
                fates.append(self._decide(key, name == topic, origin, now))
        return fates

    def _decide(self, key: Key, forwarded: bool, origin: Subscriber, now: float) -> Fate:
        seen = self._memory.seen(key, now)
        if origin.link and forwarded and seen:
            return Fate(deliver=False, forward=False)
        if origin.link and not forwarded and self._memory.take_direct(key, now):
            return Fate(deliver=False, forward=False)
        if not seen:
            self._memory.add(key, now, awaits_direct=origin.link and forwarded)
        return Fate(deliver=True, forward=not seen)

    def _spread(self, burst: Burst, origin: Subscriber, forward: bool) -> list[Delivery]:
        """The burst under the name it came with, then under its other names for those not reached yet."""
        self._hub.number(burst, self._hub.topics(burst))
        return [
            delivery
            for run, first, last in burst.runs()
            for delivery in self._spread_run(burst, run, first, last, origin, forward)
        ]

    def _spread_run(
        self, burst: Burst, run: int, first: int, last: int, origin: Subscriber, forward: bool
    ) -> Iterable[Delivery]:
        topic = burst.topics[run]
        forwarded = to_forwarded(topic)
        reached: set[Subscriber] = set() if origin.echo else {origin}
        for name in (topic, *second_names(topic)):
            links = (name == forwarded and forward) or (name == topic and not origin.link)
            audience = self._hub.router.topic(name).audience
            members = frozenset(
                (subscriber, encoder)
                for subscriber, encoder in audience.members
                if subscriber not in reached and (links or not subscriber.link)
            )
            if members:
                reached.update(subscriber for subscriber, _ in members)
                yield self._delivery(burst, name, first, last, Audience(members), renamed=name != topic)

    def _delivery(
        self, burst: Burst, name: bytes, first: int, last: int, audience: Audience, renamed: bool
    ) -> Delivery:
        if not renamed:
            return Delivery(audience, burst, [(first, last)])
        copy = burst.cut(first, last).rename([name])
        self._hub.number(copy, self._hub.topics(copy))
        return Delivery(audience, copy, [(0, last - first)])
