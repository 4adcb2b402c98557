"""Plans: from the head of a request to its response, or to how the response is made.

Host and Origin are checked first, then the token, then the path.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

import h11

from polycast.dialects.guard import Guard
from polycast.dialects.session import Page, SessionContext
from polycast.dialects.web.event_stream import NAME
from polycast.dialects.web.origins import refuse_origin, to_cors, to_options
from polycast.dialects.web.topics import Action, find_action
from polycast.dialects.web.upgrades import (
    UNAUTHORIZED,
    UPGRADE,
    AcceptedUpgrade,
    Endpoints,
    accept_upgrade,
    to_denied_page,
    to_token,
    wants_websocket,
)

OPEN = ("/healthz", "/readyz")
"""Pages for health probes, which need no rights."""
LISTENERS = "/listeners"
"""The page for clients that know the http listener only: any right opens it."""
QUERY_FIELDS_AT_MOST = 100
PAGE_METHODS = "GET, HEAD, OPTIONS"

Plan = Action | AcceptedUpgrade


class RequestTarget(NamedTuple):
    path: str
    """Percent-encoded."""
    query: str
    upgrading: bool

    @property
    def name(self) -> str:
        return unquote(self.path)


class Planner:
    def __init__(self, endpoints: Endpoints, context: SessionContext) -> None:
        self._endpoints = endpoints
        self._context = context
        self.pages: dict[str, Page | None] = {}
        """The pages of one read: pipelined requests for one page share it."""

    def plan(self, request: h11.Request, guard: Guard, now: float) -> tuple[Plan, tuple[tuple[str, str], ...]]:
        """The plan, and the headers for the page that made the request, if it may read the response."""
        authority, target = _divide(request.target.decode())
        path, _, query = target.partition("?")
        if query.count("&") >= QUERY_FIELDS_AT_MOST:
            return Page(f"more than {QUERY_FIELDS_AT_MOST:,} query fields\n".encode(), status=400), ()
        upgrading = wants_websocket(request.headers) and request.http_version != b"1.0"
        found = RequestTarget(path, query, upgrading)
        probe = not upgrading and found.name in OPEN
        refused = refuse_origin(request.method, request.headers, authority, self._context, guard, probe)
        if refused:
            return refused, ()
        return self._look_up(request, found, guard, now), to_cors(request.headers)

    def _look_up(self, request: h11.Request, target: RequestTarget, guard: Guard, now: float) -> Plan:
        path, query, upgrading = target
        is_open = not upgrading and (target.name in OPEN or target.name in self._context.public_pages)
        if not is_open and not guard.authenticate(to_token(request.headers, query)):
            return UNAUTHORIZED
        if upgrading:
            return accept_upgrade(
                self._endpoints, request.method, request.headers, target.name, query, self._context, guard
            )
        action = find_action(request.method, path, query, request.headers, self._context, guard, now)
        return action or self._find_page(request, target.name, guard, is_open)

    def _find_page(self, request: h11.Request, name: str, guard: Guard, is_open: bool) -> Page:
        if request.method == b"OPTIONS":
            return to_options(request.headers, PAGE_METHODS)
        if request.method not in (b"GET", b"HEAD"):
            return Page(b"pages are for GET and HEAD\n", status=405, headers=(("Allow", PAGE_METHODS),))
        guard.set_dialect(NAME)
        if name == LISTENERS and (listing := self._context.listeners(guard, _host(request))):
            return listing
        if not is_open and not guard.admin:
            return to_denied_page(guard)
        if name not in self.pages:
            self.pages[name] = self._context.pages(name)
        if page := self.pages[name]:
            return page
        if name in self._endpoints.by_path:
            return Page(f"no page here: {self._endpoints}\n".encode(), status=426, headers=UPGRADE)
        return Page(b"no such page\n", status=404)


def _divide(target: str) -> tuple[str, str]:
    """The host, if the target is a whole URL as for a proxy, and the path."""
    if target.startswith("/"):
        return "", target
    _, mark, rest = target.partition("://")
    host, _, path = rest.partition("/")
    return host, "/" + path if mark else ""


def _host(request: h11.Request) -> str:
    """The host under which the client reached the broker, without the port."""
    [name] = [value.decode("latin-1") for key, value in request.headers if key == b"host"] or [""]
    return re.sub(r":[0-9]*$", "", name).strip("[]")
