"""The doors of the http port: which WebSocket leads to which dialect, and who may come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import parse_qsl

from polycast.dialects.base import SHOWN_CHARACTERS, Guard, Page, Session, SessionContext
from polycast.dialects.nanomsg.sessions import PubWebSocketSession, SubWebSocketSession
from polycast.dialects.ubre.sessions import UbreWebSocketSession
from polycast.dialects.web.handshake import VERSION, accept_key, is_key, words_of

Headers = Sequence[tuple[bytes, bytes]]


class Door(NamedTuple):
    dialect: str
    session: Callable[[SessionContext, str], Session]
    """Made of the terms and what stands behind the `?` of the path; ValueError: that cannot be understood."""
    protocol: str
    """The sub-protocol that is agreed on, where it was offered."""


class Welcome(NamedTuple):
    dialect: str
    session: Session
    headers: list[tuple[str, str]]


def _to_ubre(context: SessionContext, query: str) -> Session:
    lists = [value.split(",") for key, value in parse_qsl(query, errors="strict") if key == "publishes"]
    topics = dict.fromkeys(topic for topics in lists for topic in topics if topic)
    longest = max((len(topic.encode()) for topic in topics), default=0)
    if longest > context.limits.topic_bytes:
        raise ValueError(f"a topic of {longest:,} bytes, the limit is {context.limits.topic_bytes:,}")
    return UbreWebSocketSession(context, list(topics))


ANYWHERE = {
    door.protocol: door
    for door in (
        Door("nanomsg", lambda context, query: PubWebSocketSession(context), "pub.sp.nanomsg.org"),
        Door("nanomsg", lambda context, query: SubWebSocketSession(context), "sub.sp.nanomsg.org"),
    )
}
"""Doors that are on every path, by their sub-protocol."""
INVITATION = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
"""The headers of an answer that says to come again with an upgrade."""
PATHS = {"/ubre": Door("ubre", _to_ubre, "ubre")}

UNAUTHORIZED = Page(b"Unauthorized\n", status=401, headers=(("WWW-Authenticate", "Bearer"),))
FORBIDDEN = Page(b"Forbidden\n", status=403)
MISDIRECTED = Page(b"Misdirected Request: the broker has another name; access.hosts adds one\n", status=421)
ELSEWHERE = ("cross-site", "same-site")
"""What `Sec-Fetch-Site` says where the page and the broker are not of one origin."""

SIGN = f"a WebSocket is at {' and '.join(PATHS)}, and on any path with the sub-protocol {' or '.join(ANYWHERE)}"


def wants_websocket(headers: Headers) -> bool:
    return "websocket" in map(str.lower, words_of(headers, b"upgrade"))


def knock(
    method: bytes, headers: Headers, path: str, query: str, context: SessionContext, guard: Guard = Session.guard
) -> Page | Welcome:
    """Who may come in is welcome; the others get a page that says why not."""
    if refusal := _refusal(method, headers):
        return refusal
    offered = words_of(headers, b"sec-websocket-protocol")
    door = next((ANYWHERE[name] for name in offered if name in ANYWHERE), None) or PATHS.get(path)
    if door is None:
        return Page(f"no WebSocket here: {SIGN}\n".encode(), status=400)
    try:
        session = door.session(replace(context, scheme="ws"), query)
    except ValueError as error:
        return Page(f"cannot understand what stands behind the ?: {error}\n".encode(), status=400)
    guard.speak(door.dialect)
    if guard.has_no_rights:
        return keep_out(guard)
    session.guard = guard
    [key] = words_of(headers, b"sec-websocket-key")
    answer = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", accept_key(key.encode()).decode()),
        *([("Sec-WebSocket-Protocol", door.protocol)] if door.protocol in offered else []),
    ]
    return Welcome(door.dialect, session, answer)


def _refusal(method: bytes, headers: Headers) -> Page | None:
    versions = words_of(headers, b"sec-websocket-version")
    keys = words_of(headers, b"sec-websocket-key")
    if method != b"GET":
        return Page(b"a WebSocket is asked for with GET\n", status=405, headers=(("Allow", "GET"),))
    if "upgrade" not in map(str.lower, words_of(headers, b"connection")):
        return Page(b"a WebSocket is asked for with 'Connection: Upgrade'\n", status=400)
    if versions != [VERSION]:
        known = (*INVITATION, ("Sec-WebSocket-Version", VERSION))
        return Page(f"only version {VERSION} of WebSocket is spoken here\n".encode(), status=426, headers=known)
    if len(keys) != 1 or not is_key(keys[0]):
        return Page(b"Sec-WebSocket-Key must be 16 bytes in base64\n", status=400)
    return None


def turn_away(headers: Headers, authority: str, context: SessionContext, guard: Guard, probe: bool) -> Page | None:
    """The refusal of a request by a wrong name, or from a page of another site, before anything is looked up.

    `authority` is the host in the request line, where there is one. Whoever names no host at all is no browser. A
    probe may use any name: it learns what everybody may know.
    """
    hosts = [host for host in (*_values(headers, b"host"), authority) if host]
    for host in hosts:
        if not probe and not guard.allows_host(host, context.host):
            detail = f"Host {_shown(host)} is not a name of the broker; add it to access.hosts to accept it"
            return replace(MISDIRECTED, detail=detail)
    origin, host = _origin(headers), hosts[0] if hosts else ""
    if origin is None or guard.allows_origin(origin, host, context.secure):
        return None
    site = f"Origin {_shown(origin)}" if origin else "a page, with no Origin,"
    detail = f"{site} is another site than Host {_shown(host)}; add the site to access.origins to accept it"
    return replace(FORBIDDEN, detail=detail)


def _origin(headers: Headers) -> str | None:
    """Which site's page asks; empty: another site's, None: the broker's own, or no page.

    Browsers name the origin wherever a page could change or read something. For images and the like they do not.
    """
    if origins := _values(headers, b"origin"):
        return ", ".join(origins)
    site, mode = words_of(headers, b"sec-fetch-site"), words_of(headers, b"sec-fetch-mode")
    return "" if mode != ["navigate"] and not set(site).isdisjoint(ELSEWHERE) else None


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _shown(text: str) -> str:
    return repr(text[:SHOWN_CHARACTERS])


def keep_out(guard: Guard) -> Page:
    """Whoever has shown who it is can do no better; the others are told how."""
    return FORBIDDEN if guard.known else UNAUTHORIZED


def to_token(headers: Headers, query: str) -> str | None:
    for key, value in headers:
        scheme, _, token = value.decode("latin-1").partition(" ")
        if key == b"authorization" and scheme.lower() == "bearer":
            return token.strip()
    return dict(parse_qsl(query)).get("token")
