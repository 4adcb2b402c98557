"""Requests and responses: from the requester to a responder or to the broker's own routes, and back."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from polycast.broker import Requests, requests
from polycast.dialects.guard import Guard
from polycast.dialects.session import RequestSession
from polycast.model import RESERVED_PREFIX, Body, Burst, Format, Pattern, PublishMessage, Request, RouteResponse
from polycast.routing import Subscriber
from polycast.server.dispatch.bodies import RouteError, read_request, to_json_body
from polycast.server.dispatch.outbox import Outbox
from polycast.server.dispatch.refusals import FORBIDDEN, Refusals
from polycast.server.io.connection import Connection
from polycast.server.io.memory_budget import MemoryBudget

Respond = Callable[[bool, Body], None]
"""Called once, with success and the body of the response."""
Routes = Callable[[Connection, str, Body, float, Respond], None]
"""Called with the requester, the route, the body of the request, the time, and where the response goes."""
Publish = Callable[[Connection, Burst, float, Respond], None]

log = logging.getLogger("polycast.dispatch")

MANAGED = (RESERVED_PREFIX, "spark/")
"""Routes of the broker and its pipelines; they expose all topics and need `admin`."""
QUERY = "spark/sql"
"""SQL has a right of its own, and the responder receives the topics that the requester may query."""
QUERY_CHARACTERS = 500
"""How much of a query is logged."""
QUERIES_AT_MOST = 4
"""Open queries of one identity. Spark runs one query at a time, and the others wait."""
REQUEST_BYTES = 256 * 1024
"""The largest body of a request for a pipeline."""
OWN_RULES = (RESERVED_PREFIX + "publish", RESERVED_PREFIX + "history", RESERVED_PREFIX + "messages")
"""Routes about topics: they check the rights to those topics themselves."""


class Requester(NamedTuple):
    """A requester as another node of the cluster counts its open requests."""

    connection: str
    """Unique in the cluster."""
    identity: str
    restricted: bool
    """All connections of an identity with limited rights share its open requests."""

    @property
    def shared_identity(self) -> str:
        return self.identity if self.restricted else ""


Elsewhere = Callable[[str, Body, Requester, Respond], None]


def may_request(guard: Guard, route: str) -> bool:
    """A request to another client needs the right to publish to its route."""
    if route in OWN_RULES:
        return True
    if route == QUERY:
        return guard.query_patterns is None or bool(guard.query_patterns)
    return guard.admin if route.startswith(MANAGED) else guard.may_publish(route.encode())


class ReturnPath(NamedTuple):
    """Where the response to a request goes."""

    handle: Any
    is_allowed: Callable[[], bool]
    """Whether the requester still has the right to the response."""
    respond: Respond | None = None
    """For a requester at another node of a cluster."""


def _to_check(guard: Guard, route: str) -> Callable[[], bool]:
    """The check of a response. Routes of clients have none: their responders decide."""
    if route == QUERY:
        return partial(_may_query_still, guard, guard.query_patterns)
    return partial(may_request, guard, route) if route.startswith(MANAGED) else lambda: True


def _may_query_still(guard: Guard, before: list[Pattern] | None) -> bool:
    """Whether all that the requester could query at its request is open to it now."""
    now = guard.query_patterns
    return now is None or (before is not None and set(before) <= set(now))


def may_offer(guard: Guard, route: str) -> bool:
    """Only an admin may respond for the broker's own routes; every other route needs the right to serve it."""
    return guard.admin if route.startswith(MANAGED) else guard.may_serve(route)


def to_attested(guard: Guard, body: Body) -> Body:
    """The request as a pipeline gets it, with the identity and rights of the requester.

    {"identity": text, "query": [pattern] or null for all topics, "body": the requester's own}
    """
    if len(body.payload) > REQUEST_BYTES:
        raise RouteError(f"TooLarge: the body has {len(body.payload):,} bytes, the limit is {REQUEST_BYTES:,}")
    requested = None if body.format is Format.NONE else read_request(body, Any)
    patterns = None if guard.query_patterns is None else [str(pattern) for pattern in guard.query_patterns]
    return to_json_body({"identity": guard.identity, "query": patterns, "body": requested})


def _shown(attested: Body) -> str:
    """The query as one printable line for the log, cut if it is long."""
    body = json.loads(attested.payload)["body"]
    query = body.get("query") if isinstance(body, dict) else body
    text = query if isinstance(query, str) else json.dumps(query)
    return ascii(text) if len(text) <= QUERY_CHARACTERS else f"{text[:QUERY_CHARACTERS]!a}..."


def _no_route(requester: Connection, route: str, body: Body, now: float, respond: Respond) -> None:
    respond(False, requests.text_body(requests.NOT_FOUND))


class RequestHandler:
    def __init__(self, open_requests: Requests, outbox: Outbox, refusals: Refusals, budget: MemoryBudget) -> None:
        self._requests = open_requests
        self._outbox = outbox
        self._refusals = refusals
        self._budget = budget
        self.routes: Routes = _no_route
        """Responds to requests for the broker itself."""
        self.publish_message: Publish
        """Publishes one message, and responds with its position."""
        self._held: set[Subscriber] = set()
        """Requesters that are not read before the response to their request."""
        self.elsewhere: Elsewhere | None = None
        """Sends a request to another node of the cluster."""
        self._remotes: dict[str, Subscriber] = {}
        """Stand for the requesters at other nodes with open requests, by connection."""
        self._own: Counter[Subscriber] = Counter()
        """Open requests to the broker itself, by requester."""
        self._queries: dict[int, tuple[Subscriber, str]] = {}
        """Open queries by number: the responder and the requester's identity. A query stays open when its
        requester leaves or it expires, because the responder is not notified."""

    def request(self, connection: Connection, request: Request, now: float) -> None:
        requester = connection.subscriber
        route, body = request.route, request.body
        self._hold(connection)
        path = ReturnPath(request.handle, _to_check(connection.guard, route))
        if connection.guard.restricted and not may_request(connection.guard, route):
            self._refusals.refuse(connection, FORBIDDEN, detail=connection.guard.denial_text("request", route))
            self._send(requester, path, False, requests.text_body(FORBIDDEN))
        elif route.startswith(RESERVED_PREFIX):
            self._own[requester] += 1
            self.routes(connection, route, body, now, partial(self._respond_itself, requester, path))
        elif route == QUERY:
            self._query(connection, path, body)
        else:
            self._forward(connection, route, path, body)

    def publish(self, connection: Connection, event: PublishMessage, now: float) -> None:
        self._hold(connection)
        requester = connection.subscriber
        path = ReturnPath(event.handle, lambda: True)
        self._own[requester] += 1
        self.publish_message(connection, event.burst, now, partial(self._respond_itself, requester, path))

    def _hold(self, connection: Connection) -> None:
        """Reads no further before the response, if the session wants it so."""
        if cast(RequestSession, connection.session).one_request:
            self._held.add(connection.subscriber)
            self._budget.hold(connection)

    def _continue(self, connection: Connection) -> None:
        if connection.subscriber in self._held:
            self._held.discard(connection.subscriber)
            self._budget.release(connection)
            connection.continue_input()
            self._outbox.flush()
            self._outbox.close_if_done(connection)

    def _forward(self, connection: Connection, route: str, path: ReturnPath, body: Body) -> None:
        """To a responder. All connections of an identity with limited rights share its open requests."""
        guard, subscriber = connection.guard, connection.subscriber
        requester = Requester(connection.name.partition(" ")[0], guard.identity, guard.restricted)
        if self.elsewhere and not self._requests.count_responders(route):
            self._own[subscriber] += 1
            self.elsewhere(route, body, requester, partial(self._respond_itself, subscriber, path))
        else:
            self._send_request(subscriber, requester, route, path, body)

    def _send_request(
        self, subscriber: Subscriber, requester: Requester, route: str, path: ReturnPath, body: Body
    ) -> None:
        if route == QUERY and self._count_queries(requester.identity) >= QUERIES_AT_MOST:
            self._send(subscriber, path, False, requests.text_body(requests.BUSY))
            return
        now = time.monotonic()
        effects = self._requests.request(subscriber, route, path, body, now, requester.shared_identity)
        if route == QUERY:
            sent = [effect for effect in effects if isinstance(effect, requests.SendRequest)]
            self._queries |= {each.number: (each.responder, requester.identity) for each in sent}
        self._apply(effects)

    def _count_queries(self, identity: str) -> int:
        return sum(identity == other for _, other in self._queries.values())

    def request_for_other(self, route: str, body: Body, requester: Requester, respond: Respond) -> None:
        """A request of a requester at another node, which has checked its rights. Limits are checked here: this
        node knows the open requests of all nodes to its responders."""
        name = requester.connection
        stand_in = self._remotes.setdefault(name, Subscriber(self))
        path = ReturnPath(None, lambda: True, partial(self._respond_other, name, respond))
        self._send_request(stand_in, requester, route, path, body)
        self._outbox.flush()

    def _respond_other(self, name: str, respond: Respond, success: bool, body: Body) -> None:
        if (stand_in := self._remotes.get(name)) and not self._requests.awaits_response(stand_in):
            del self._remotes[name]
        respond(success, body)

    def _query(self, connection: Connection, path: ReturnPath, body: Body) -> None:
        try:
            attested = to_attested(connection.guard, body)
        except RouteError as error:
            self._send(connection.subscriber, path, False, requests.text_body(str(error)))
        else:
            identity = connection.guard.identity
            log.info("%s: %s queries %s", connection, identity, _shown(attested))
            self._forward(connection, QUERY, path, attested)

    def respond(self, connection: Connection, response: RouteResponse) -> bool:
        """False: no request waits for this response."""
        responder, _ = self._queries.get(response.number, (None, ""))
        if responder is connection.subscriber:
            del self._queries[response.number]
        effects = self._requests.respond(connection.subscriber, response.number, response.success, response.body)
        self._apply(effects or [])
        return effects is not None

    def is_pending(self, requester: Subscriber) -> bool:
        is_held = requester in self._held
        return is_held or self._own[requester] > 0 or self._requests.awaits_response(requester)

    def leave(self, subscriber: Subscriber) -> None:
        del self._own[subscriber]
        self._held.discard(subscriber)
        left = [number for number, (responder, _) in self._queries.items() if responder is subscriber]
        for number in left:
            del self._queries[number]
        self._apply(self._requests.leave(subscriber))

    def abandon(self) -> None:
        """Fails all open requests: the broker stops."""
        self._apply(self._requests.abandon())

    def expire(self) -> None:
        self._apply(self._requests.expire(time.monotonic()))

    def _apply(self, effects: list[requests.Effect]) -> None:
        """Sends everything before it closes a connection: one whose input has ended may get several responses."""
        requesters: dict[Connection, None] = {}
        for effect in effects:
            match effect:
                case requests.SendRequest(responder, number, route, body):
                    session = cast(RequestSession, responder.owner.session)
                    self._outbox.send(responder.owner, session.to_request(number, route, body))
                case requests.SendResponse(_, ReturnPath(_, _, respond), success, body) if respond:
                    respond(success, body)
                case requests.SendResponse(requester, (handle, is_allowed, _), success, body):
                    if success and not is_allowed():
                        success, body = False, requests.text_body(FORBIDDEN)
                    session = cast(RequestSession, requester.owner.session)
                    self._outbox.send_blocks(requester.owner, session.response_blocks(handle, success, body))
                    requesters[requester.owner] = None
        for connection in requesters:
            if connection.subscriber in self._held:
                asyncio.get_running_loop().call_soon(self._continue, connection)
            self._outbox.close_if_done(connection)

    def _send(self, requester: Subscriber, path: ReturnPath, success: bool, body: Body) -> None:
        self._apply([requests.SendResponse(requester, path, success, body)])

    def _respond_itself(self, requester: Subscriber, path: ReturnPath, success: bool, body: Body) -> None:
        """The broker's own response, unless the requester has left."""
        if requester.owner is not None:
            self._own[requester] -= 1
            self._send(requester, path, success, body)
