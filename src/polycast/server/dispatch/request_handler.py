"""Requests on their way: to who answers them, and the answers back to who asked."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from polycast.broker import Requests, requests
from polycast.dialects.guard import Guard
from polycast.dialects.session import RequestSession
from polycast.model import RESERVED_PREFIX, Body, Format, Request, Response
from polycast.routing import Subscriber
from polycast.server.api.bodies import RouteError, read_asked, to_json_body
from polycast.server.dispatch.delivery import Outgoing
from polycast.server.io.connection import Connection

Routes = Callable[[Connection, str, Body, float, Callable[[bool, Body], None]], None]
"""Takes who asks, the route, the body of the request, the time, and what to call with the answer."""

log = logging.getLogger("polycast.exchange")

FORBIDDEN = "Forbidden"
DETAILS_AT_MOST = 1000
"""So many refusals of a kind are told in the log; the others are only counted."""
MANAGED = (RESERVED_PREFIX, "spark/")
"""Routes of the broker and of its pipelines: they show everything, whatever somebody may hear."""
QUERY = "spark/sql"
"""The route of SQL: it has a right of its own, and the responder is told what the requester may query."""
QUERY_CHARACTERS = 500
"""So much of a query is in the log."""
REQUEST_BYTES = 256 * 1024
"""The largest body of a request for a pipeline."""
OWN_RULES = (RESERVED_PREFIX + "publish", RESERVED_PREFIX + "history")
"""Routes that are about topics: they look at what is allowed by themselves."""


def may_ask(guard: Guard, route: str) -> bool:
    """To ask somebody else is as much as to publish to it."""
    if route in OWN_RULES:
        return True
    if route == QUERY:
        return guard.query_patterns is None or bool(guard.query_patterns)
    return guard.admin if route.startswith(MANAGED) else guard.may_publish(route.encode())


def may_offer(guard: Guard, route: str) -> bool:
    """A responder of the broker's own routes must be an admin; all other routes need the right to serve them."""
    return guard.admin if route.startswith(MANAGED) else guard.may_serve(route)


def to_attested(guard: Guard, body: Body) -> Body:
    """The request as a pipeline gets it, with the identity and rights of the requester.

    {"identity": text, "query": [pattern] or null for all topics, "body": the requester's own}
    """
    if len(body.payload) > REQUEST_BYTES:
        raise RouteError(f"TooLarge: the body has {len(body.payload):,} bytes, the limit is {REQUEST_BYTES:,}")
    asked = None if body.format is Format.NONE else read_asked(body, Any)
    patterns = None if guard.query_patterns is None else [str(pattern) for pattern in guard.query_patterns]
    return to_json_body({"identity": guard.identity, "query": patterns, "body": asked})


def _shown(attested: Body) -> str:
    """What is asked, for the log: one line of printable letters, and not all of it if it is long."""
    asked = json.loads(attested.payload)["body"]
    query = asked.get("query") if isinstance(asked, dict) else asked
    text = query if isinstance(query, str) else json.dumps(query)
    return ascii(text) if len(text) <= QUERY_CHARACTERS else f"{text[:QUERY_CHARACTERS]!a}..."


def _no_route(
    requester: Connection, route: str, body: Body, now: float, answer: Callable[[bool, Body], None]
) -> None:
    answer(False, requests.text_body(requests.NOT_FOUND))


class Asking:
    def __init__(self, open_requests: Requests, outgoing: Outgoing) -> None:
        self._requests = open_requests
        self._outgoing = outgoing
        self.routes: Routes = _no_route
        """Who answers the requests that are for the broker itself."""
        self._asked: Counter[Subscriber] = Counter()
        """How many answers of the broker itself are to come."""

    def ask(self, connection: Connection, request: Request, now: float) -> None:
        requester = connection.subscriber
        route, handle, body = request.route, request.handle, request.body
        if connection.guard.restricted and not may_ask(connection.guard, route):
            self._refuse(connection, route)
            self._answer(requester, handle, False, requests.text_body(FORBIDDEN))
        elif route.startswith(RESERVED_PREFIX):
            self._asked[requester] += 1
            self.routes(connection, route, body, now, partial(self._answer_itself, requester, handle))
        elif route == QUERY:
            self._query(connection, request)
        else:
            self._pass(self._requests.request(requester, route, handle, body, time.monotonic()))

    def _query(self, connection: Connection, request: Request) -> None:
        requester, handle = connection.subscriber, request.handle
        try:
            attested = to_attested(connection.guard, request.body)
        except RouteError as error:
            self._answer(requester, handle, False, requests.text_body(str(error)))
        else:
            log.info("%s: %s queries %s", connection, connection.guard.identity, _shown(attested))
            self._pass(self._requests.request(requester, request.route, handle, attested, time.monotonic()))

    def _refuse(self, connection: Connection, route: str) -> None:
        refused = connection.port.counters.refused
        refused[FORBIDDEN] += 1
        worth = refused[FORBIDDEN] <= DETAILS_AT_MOST
        level = logging.INFO if worth else logging.DEBUG
        log.log(level, "%s: %s", connection, connection.guard.denial_text("ask", route))

    def answer(self, connection: Connection, answer: Response) -> bool:
        """Whether somebody waits for it."""
        effects = self._requests.respond(connection.subscriber, answer.number, answer.success, answer.body)
        self._pass(effects or [])
        return effects is not None

    def owes(self, requester: Subscriber) -> bool:
        return self._asked[requester] > 0 or self._requests.awaits_response(requester)

    def leave(self, subscriber: Subscriber) -> None:
        del self._asked[subscriber]
        self._pass(self._requests.leave(subscriber))

    def abandon(self) -> None:
        """Whoever waits for an answer is told that there will be none."""
        self._pass(self._requests.abandon())

    def expire(self) -> None:
        """Requests that nobody answered in time."""
        self._pass(self._requests.expire(time.monotonic()))

    def _pass(self, effects: list[requests.Effect]) -> None:
        for effect in effects:
            match effect:
                case requests.SendRequest(responder, number, route, body):
                    session = cast(RequestSession, responder.owner.session)
                    self._outgoing.send(responder.owner, session.to_request(number, route, body))
                case requests.SendResponse(requester, handle, success, body):
                    self._answer(requester, handle, success, body)

    def _answer(self, requester: Subscriber, handle: Any, success: bool, body: Body) -> None:
        connection: Connection = requester.owner
        session = cast(RequestSession, connection.session)
        self._outgoing.send_owed(connection, session.to_response(handle, success, body))

    def _answer_itself(self, requester: Subscriber, handle: Any, success: bool, body: Body) -> None:
        """The broker's own answer, unless nobody is there any more to hear it."""
        if requester.owner is not None:
            self._asked[requester] -= 1
            self._answer(requester, handle, success, body)
