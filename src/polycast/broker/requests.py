"""Requests: who answers which route, and which answers are still owed.

A request goes to one of those who offered to answer its route, each in turn, under a number of our own; the
answer travels back under whatever handle the requester gave. Every request gets exactly one answer: the
responder's, or one of the words below.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, NamedTuple

from polycast.model import Body, Format
from polycast.routing import Subscriber

NOT_FOUND = "NotFound"
TIMEOUT = "Timeout"
GONE = "Gone"
BUSY = "Busy"


class Forward(NamedTuple):
    """Hand this request to the responder."""

    responder: Subscriber
    number: int
    route: str
    body: Body


class Answered(NamedTuple):
    """Hand this answer to the requester."""

    requester: Subscriber
    handle: Any
    success: bool
    body: Body


Effect = Forward | Answered


class Open(NamedTuple):
    requester: Subscriber
    handle: Any
    responder: Subscriber
    until: float


def word(text: str) -> Body:
    """A body that is just this word."""
    return Body(text.encode(), Format.TEXT)


def value(content: Any) -> Body:
    """A body that is this JSON value."""
    return Body(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), Format.JSON)


SHARE = 4
"""A requester may hold a quarter of all that may be open: nobody can keep the others from asking."""
EXPIRED_AT_ONCE = 10_000
"""How many requests one call of `expire` ends: the broker does nothing else meanwhile."""


class Requests:
    def __init__(self, seconds: float = 30.0, limit: int = 1_000_000) -> None:
        self._seconds = seconds
        self._limit = limit
        self._share = max(1, limit // SHARE)
        self._offers: dict[str, OrderedDict[Subscriber, None]] = {}
        """Who answers a route, the one whose turn it is first."""
        self._routes: dict[Subscriber, set[str]] = {}
        self._open: OrderedDict[int, Open] = OrderedDict()
        """By number, and so in the order in which they run out."""
        self._asked: dict[Subscriber, set[int]] = {}
        """The open requests of each requester."""
        self._owed: dict[Subscriber, set[int]] = {}
        """The open requests that each responder was handed."""
        self._numbered = 0

    def __len__(self) -> int:
        return len(self._open)

    def routes(self) -> dict[str, int]:
        """How many answer each route."""
        return {route: len(offers) for route, offers in self._offers.items()}

    def served_by(self, responder: Subscriber) -> set[str]:
        """The routes that it offered to answer."""
        return self._routes.get(responder, set())

    def offer(self, responder: Subscriber, route: str) -> None:
        self._offers.setdefault(route, OrderedDict())[responder] = None
        self._routes.setdefault(responder, set()).add(route)

    def withdraw(self, responder: Subscriber, route: str) -> None:
        routes = self._routes.get(responder, set())
        if route not in routes:
            return
        routes.remove(route)
        del self._offers[route][responder]
        if not self._offers[route]:
            del self._offers[route]
        if not routes:
            del self._routes[responder]

    def leave(self, subscriber: Subscriber) -> list[Effect]:
        """It is gone, and so are its offers and its requests; whoever waits for its answers learns of it."""
        for route in list(self._routes.get(subscriber, ())):
            self.withdraw(subscriber, route)
        for number in list(self._asked.get(subscriber, ())):
            self._close(number)
        closed = [self._close(number) for number in sorted(self._owed.get(subscriber, ()))]
        return [Answered(each.requester, each.handle, False, word(GONE)) for each in closed]

    def ask(self, requester: Subscriber, route: str, handle: Any, body: Body, now: float) -> list[Effect]:
        offers = self._offers.get(route)
        if not offers:
            return [Answered(requester, handle, False, word(NOT_FOUND))]
        if len(self._open) >= self._limit or len(self._asked.get(requester, ())) >= self._share:
            return [Answered(requester, handle, False, word(BUSY))]
        responder = next(iter(offers))
        offers.move_to_end(responder)
        self._numbered += 1
        self._open[self._numbered] = Open(requester, handle, responder, now + self._seconds)
        self._asked.setdefault(requester, set()).add(self._numbered)
        self._owed.setdefault(responder, set()).add(self._numbered)
        return [Forward(responder, self._numbered, route, body)]

    def answer(self, responder: Subscriber, number: int, success: bool, body: Body) -> list[Effect] | None:
        """None where nobody waits for such an answer, or not from this one."""
        waiting = self._open.get(number)
        if waiting is None or waiting.responder is not responder:
            return None
        self._close(number)
        return [Answered(waiting.requester, waiting.handle, success, body)]

    def owes(self, requester: Subscriber) -> bool:
        """Whether an answer is still to come for it."""
        return requester in self._asked

    def abandon(self) -> list[Effect]:
        """Nobody will answer any more."""
        closed = [self._close(number) for number in list(self._open)]
        return [Answered(each.requester, each.handle, False, word(GONE)) for each in closed]

    def expire(self, now: float) -> list[Effect]:
        """Ends the requests whose time is over, the oldest first. Of very many, the rest is for the next call."""
        effects: list[Effect] = []
        while self._open and len(effects) < EXPIRED_AT_ONCE:
            number, (requester, handle, _, until) = next(iter(self._open.items()))
            if until > now:
                break
            self._close(number)
            effects.append(Answered(requester, handle, False, word(TIMEOUT)))
        return effects

    def _close(self, number: int) -> Open:
        closed = self._open.pop(number)
        for subscriber, numbers in ((closed.requester, self._asked), (closed.responder, self._owed)):
            numbers[subscriber].remove(number)
            if not numbers[subscriber]:
                del numbers[subscriber]
        return closed
