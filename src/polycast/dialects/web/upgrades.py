"""WebSocket endpoints of the http listener: from an upgrade to a dialect's session, or to a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import parse_qsl

from polycast.dialects.contract import WebSocketEndpoint
from polycast.dialects.guard import Guard
from polycast.dialects.session import Page, Session, SessionContext
from polycast.dialects.web.handshake import VERSION, accept_key, is_key, words_of
from polycast.dialects.web.origins import FORBIDDEN, Headers

UPGRADE = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
"""Headers of a 426: the client should repeat the request as an upgrade."""
UNAUTHORIZED = Page(b"Unauthorized\n", status=401, headers=(("WWW-Authenticate", "Bearer"),))


class AcceptedUpgrade(NamedTuple):
    dialect: str
    session: Session
    headers: list[tuple[str, str]]


class Endpoints:
    def __init__(self, endpoints: Iterable[WebSocketEndpoint]) -> None:
        listed = list(endpoints)
        self.by_path = {endpoint.path: endpoint for endpoint in listed if endpoint.path}
        self.by_protocol = {endpoint.protocol: endpoint for endpoint in listed if not endpoint.path}

    def __str__(self) -> str:
        paths, protocols = " and ".join(self.by_path), " or ".join(self.by_protocol)
        return f"a WebSocket is at {paths}, and on any path with the sub-protocol {protocols}"

    def find(self, offered: list[str], path: str) -> WebSocketEndpoint | None:
        """By a sub-protocol that the client offers, or by path."""
        named = [self.by_protocol[name] for name in offered if name in self.by_protocol]
        return named[0] if named else self.by_path.get(path)


def wants_websocket(headers: Headers) -> bool:
    return "websocket" in map(str.lower, words_of(headers, b"upgrade"))


def accept_upgrade(
    endpoints: Endpoints,
    method: bytes,
    headers: Headers,
    path: str,
    query: str,
    context: SessionContext,
    guard: Guard = Session.guard,
) -> Page | AcceptedUpgrade:
    """The session for a WebSocket, or a page that says why there is none."""
    if refusal := _check_request(method, headers):
        return refusal
    offered = words_of(headers, b"sec-websocket-protocol")
    endpoint = endpoints.find(offered, path)
    if endpoint is None:
        return Page(f"no WebSocket here: {endpoints}\n".encode(), status=400)
    try:
        session = endpoint.session(replace(context, scheme="ws"), query)
    except ValueError as error:
        return Page(f"invalid query in the URL: {error}\n".encode(), status=400)
    guard.set_dialect(endpoint.dialect)
    if guard.has_no_rights:
        return to_denied_page(guard)
    session.guard = guard
    [key] = words_of(headers, b"sec-websocket-key")
    response = [
        *UPGRADE,
        ("Sec-WebSocket-Accept", accept_key(key.encode()).decode()),
        *([("Sec-WebSocket-Protocol", endpoint.protocol)] if endpoint.protocol in offered else []),
    ]
    return AcceptedUpgrade(endpoint.dialect, session, response)


def _check_request(method: bytes, headers: Headers) -> Page | None:
    """The refusal of an invalid upgrade (RFC 6455, 4.2.1)."""
    versions = words_of(headers, b"sec-websocket-version")
    keys = words_of(headers, b"sec-websocket-key")
    if method != b"GET":
        return Page(b"a WebSocket needs the method GET\n", status=405, headers=(("Allow", "GET"),))
    if "upgrade" not in map(str.lower, words_of(headers, b"connection")):
        return Page(b"a WebSocket needs 'Connection: Upgrade'\n", status=400)
    if versions != [VERSION]:
        known = (*UPGRADE, ("Sec-WebSocket-Version", VERSION))
        return Page(f"only version {VERSION} of WebSocket is supported\n".encode(), status=426, headers=known)
    if len(keys) != 1 or not is_key(keys[0]):
        return Page(b"Sec-WebSocket-Key must be 16 bytes in base64\n", status=400)
    return None


def to_denied_page(guard: Guard) -> Page:
    """An identified peer lacks rights; any other peer may still authenticate."""
    return FORBIDDEN if guard.known else UNAUTHORIZED


def to_token(headers: Headers, query: str) -> str | None:
    for key, value in headers:
        scheme, _, token = value.decode("latin-1").partition(" ")
        if key == b"authorization" and scheme.lower() == "bearer":
            return token.strip()
    return dict(parse_qsl(query)).get("token")
