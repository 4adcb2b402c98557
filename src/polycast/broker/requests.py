"""Request routing: which responders serve which route, and which requests are open.

A request goes to one responder of its route, in round-robin order, under a number of the broker's own. The
response carries the handle of the requester. Every request gets exactly one response: that of the responder, or
one of the errors below.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

from polycast.model import Body, Format
from polycast.routing import Subscriber

NOT_FOUND = "NotFound"
TIMEOUT = "Timeout"
GONE = "Gone"
BUSY = "Busy"


class SendRequest(NamedTuple):
    responder: Subscriber
    number: int
    route: str
    body: Body


class SendResponse(NamedTuple):
    requester: Subscriber
    handle: Any
    success: bool
    body: Body


Effect = SendRequest | SendResponse


class OpenRequest(NamedTuple):
    requester: Subscriber
    handle: Any
    responder: Subscriber
    deadline: float
    identity: str


def text_body(text: str) -> Body:
    return Body(text.encode(), Format.TEXT)


def json_body(content: Any) -> Body:
    return Body(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), Format.JSON)


SHARE = 4
"""One requester may have a quarter of the open requests, and so may all requesters of one identity together: they
cannot block the others."""
EXPIRE_LIMIT = 10_000
"""Requests that one call of `expire` ends at most: the event loop waits for it."""


class Requests:
    def __init__(self, seconds: float = 30.0, limit: int = 1_000_000) -> None:
        self._seconds = seconds
        self._limit = limit
        self._share = max(1, limit // SHARE)
        self._offers: dict[str, OrderedDict[Subscriber, None]] = {}
        """The responders of each route; the next one is first."""
        self._routes: dict[Subscriber, set[str]] = {}
        self._open: OrderedDict[int, OpenRequest] = OrderedDict()
        """By number, and therefore in the order of their deadlines."""
        self._requested: dict[Subscriber, set[int]] = {}
        """The open requests of each requester."""
        self._by_identity: Counter[str] = Counter()
        """The number of open requests of each identity."""
        self._assigned: dict[Subscriber, set[int]] = {}
        """The open requests of each responder."""
        self._numbered = 0

    def __len__(self) -> int:
        return len(self._open)

    def routes(self) -> dict[str, int]:
        return {route: len(offers) for route, offers in self._offers.items()}

    def count_responders(self, route: str) -> int:
        return len(self._offers.get(route, ()))

    def served_by(self, responder: Subscriber) -> set[str]:
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
        """Removes its routes and its requests. Requests that it has not responded to fail."""
        for route in list(self._routes.get(subscriber, ())):
            self.withdraw(subscriber, route)
        for number in list(self._requested.get(subscriber, ())):
            self._close(number)
        closed = [self._close(number) for number in sorted(self._assigned.get(subscriber, ()))]
        return [SendResponse(each.requester, each.handle, False, text_body(GONE)) for each in closed]

    def request(
        self, requester: Subscriber, route: str, handle: Any, body: Body, now: float, identity: str = ""
    ) -> list[Effect]:
        """`identity` is empty for a requester that has a share of its own."""
        offers = self._offers.get(route)
        if not offers:
            return [SendResponse(requester, handle, False, text_body(NOT_FOUND))]
        count = max(len(self._requested.get(requester, ())), self._by_identity[identity])
        if len(self._open) >= self._limit or count >= self._share:
            return [SendResponse(requester, handle, False, text_body(BUSY))]
        responder = next(iter(offers))
        offers.move_to_end(responder)
        self._numbered += 1
        self._open[self._numbered] = OpenRequest(requester, handle, responder, now + self._seconds, identity)
        if identity:
            self._by_identity[identity] += 1
        self._requested.setdefault(requester, set()).add(self._numbered)
        self._assigned.setdefault(responder, set()).add(self._numbered)
        return [SendRequest(responder, self._numbered, route, body)]

    def respond(self, responder: Subscriber, number: int, success: bool, body: Body) -> list[Effect] | None:
        """None if no such request is open at this responder."""
        found = self._open.get(number)
        if found is None or found.responder is not responder:
            return None
        self._close(number)
        return [SendResponse(found.requester, found.handle, success, body)]

    def awaits_response(self, requester: Subscriber) -> bool:
        return requester in self._requested

    def abandon(self) -> list[Effect]:
        """Fails all open requests: the broker stops."""
        closed = [self._close(number) for number in list(self._open)]
        return [SendResponse(each.requester, each.handle, False, text_body(GONE)) for each in closed]

    def expire(self, now: float) -> list[Effect]:
        """Fails requests past their deadline, oldest first; beyond `EXPIRE_LIMIT`, at the next call."""
        effects: list[Effect] = []
        while self._open and len(effects) < EXPIRE_LIMIT:
            number, oldest = next(iter(self._open.items()))
            if oldest.deadline > now:
                break
            self._close(number)
            effects.append(SendResponse(oldest.requester, oldest.handle, False, text_body(TIMEOUT)))
        return effects

    def _close(self, number: int) -> OpenRequest:
        closed = self._open.pop(number)
        if closed.identity:
            self._by_identity[closed.identity] -= 1
            if not self._by_identity[closed.identity]:
                del self._by_identity[closed.identity]
        for subscriber, numbers in ((closed.requester, self._requested), (closed.responder, self._assigned)):
            numbers[subscriber].remove(number)
            if not numbers[subscriber]:
                del numbers[subscriber]
        return closed
