"""Topics over HTTP: requests for `/topics/NAME` and `/events`.

    POST /topics/NAME                                 publishes the body
    GET  /topics/NAME?from=POSITION&limit=N           reads messages of one topic from the log
    GET  /events?pattern=P&pattern=P&from=POSITION    subscribes: a stream of server-sent events

NAME is percent-encoded UTF-8; a slash in it may stand as it is. `log=ID` makes a position valid for one log only.
Everything is decided from the head of the request: rights are checked before a body is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from polycast.dialects.guard import Guard
from polycast.dialects.json_bodies import shown
from polycast.dialects.session import Page, SessionContext
from polycast.dialects.start_positions import to_json_start
from polycast.dialects.web.event_stream import CONTENT_TYPE, NAME, EventStreamSession
from polycast.dialects.web.handshake import words_of
from polycast.dialects.web.origins import Headers, to_options
from polycast.dialects.web.upgrades import to_denied_page
from polycast.errors import LimitError, UsageError
from polycast.model import Body, Exact, Format, Pattern, StartPosition, parse_pattern, parse_start
from polycast.model.start_positions import LARGEST

TOPICS, EVENTS = "/topics/", "/events"
READ_ROUTE = "polycast/messages"
LIMIT = 10_000
"""The most messages of one response."""
PATTERNS_AT_MOST = 100
COMMITTED, LIVE = "committed", "live"
UTF8_NAMES = ("utf-8", "utf8", "us-ascii")


class TopicPublication(NamedTuple):
    """The body of the request is to be published."""

    topic: bytes
    format: Format


class Query(NamedTuple):
    """A request to the broker; its response is the body of the HTTP response."""

    route: str
    body: Body


Action = Page | TopicPublication | Query | EventStreamSession


class RequestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def find_action(
    method: bytes, path: str, query: str, headers: Headers, context: SessionContext, guard: Guard, now: float
) -> Action | None:
    """`path` is percent-encoded; None: it is the path of something else."""
    if not path.startswith(TOPICS) and path != EVENTS:
        return None
    guard.set_dialect(NAME)
    methods = "GET, HEAD, OPTIONS" if path == EVENTS else "GET, HEAD, OPTIONS, POST"
    if method == b"OPTIONS":
        return to_options(headers, methods)
    if method.decode() not in methods.split(", "):
        return Page(f"the methods are {methods}\n".encode(), status=405, headers=(("Allow", methods),))
    try:
        if path == EVENTS:
            return _to_stream(method, query, headers, context, guard, now)
        topic = _read_topic(path.removeprefix(TOPICS), context)
        if method == b"POST":
            return _to_publication(topic, query, headers, guard)
        return _to_query(topic, query, context, guard, now)
    except RequestError as error:
        return Page(f"{error}\n".encode(), status=error.status)
    except UsageError as error:
        return Page(f"{error}; {error.hint}\n".encode(), status=400)


# -- publishing ------------------------------------------------------------------------------------------


def _to_publication(topic: str, query: str, headers: Headers, guard: Guard) -> Page | TopicPublication:
    _read_fields(query, ())
    if not guard.may_publish(topic.encode()):
        return _deny(guard, "publish to", topic)
    if words_of(headers, b"content-encoding"):
        raise RequestError(415, "a body with Content-Encoding is not supported; send it as it is")
    return TopicPublication(topic.encode(), _to_format(headers))


def _to_format(headers: Headers) -> Format:
    """By the Content-Type of the body."""
    value = next((value.decode("latin-1") for key, value in headers if key == b"content-type"), "")
    kind, *parameters = (part.strip().lower() for part in value.split(";"))
    found = (
        Format.JSON if kind == "application/json" else Format.TEXT if kind.startswith("text/") else Format.BYTES
    )
    charsets = [each.partition("=")[2].strip('" ') for each in parameters if each.startswith("charset")]
    if found is not Format.BYTES and not set(charsets) <= set(UTF8_NAMES):
        raise RequestError(415, f"text in {shown(charsets[0])}, expected UTF-8")
    return found


# -- reading ---------------------------------------------------------------------------------------------


def _to_query(topic: str, query: str, context: SessionContext, guard: Guard, now: float) -> Page | Query:
    fields = _read_fields(query, ("from", "limit", "log"))
    pattern = Exact(topic)
    if not guard.may_subscribe(pattern):
        return _deny(guard, "subscribe to", topic)
    start = _read_start(fields.get("from", ["earliest"])[0], now)
    _check_log(fields, start, context)
    body = {"topic": topic, "from": to_json_start(start, [pattern]), "limit": _read_limit(fields)}
    return Query(READ_ROUTE, Body(msgspec.json.encode(body), Format.JSON))


def _read_limit(fields: dict[str, list[str]]) -> int:
    [text] = fields.get("limit", ["100"])
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= LIMIT):
        raise RequestError(400, f"limit is {shown(text)}, expected 1 to {LIMIT:,}")
    return int(text)


# -- subscribing -----------------------------------------------------------------------------------------


def _to_stream(
    method: bytes, query: str, headers: Headers, context: SessionContext, guard: Guard, now: float
) -> Page | EventStreamSession:
    fields = _read_fields(query, ("pattern", "from", "log", "delivery"), several="pattern")
    patterns = [_read_pattern(text, context) for text in fields.get("pattern", [])]
    if not 1 <= len(patterns) <= PATTERNS_AT_MOST:
        found = f"{len(patterns):,} patterns, expected 1 to {PATTERNS_AT_MOST}"
        raise RequestError(400, f"{found}, as in {EVENTS}?pattern=orders.>")
    for pattern in patterns:
        if not guard.may_subscribe(pattern):
            return _deny(guard, "subscribe to", str(pattern))
    start = _read_resume(headers) or _read_start(fields.get("from", ["latest"])[0], now)
    if start and start.sequence is not None and not all(isinstance(pattern, Exact) for pattern in patterns):
        raise RequestError(400, "a sequence belongs to one topic; start at a time or at an offset (@N)")
    _check_log(fields, start, context)
    if method == b"HEAD":
        return Page(b"", CONTENT_TYPE)
    session = EventStreamSession(context, patterns, start, committed=_is_committed(fields))
    session.guard = guard
    return session


def _is_committed(fields: dict[str, list[str]]) -> bool:
    [text] = fields.get("delivery", [COMMITTED])
    if text not in (COMMITTED, LIVE):
        raise RequestError(400, f"delivery is {shown(text)}, expected {COMMITTED} or {LIVE}")
    return text == COMMITTED


def _read_pattern(text: str, context: SessionContext) -> Pattern:
    pattern = parse_pattern(text)
    _check_topic(pattern.value, context)
    return pattern


def _read_resume(headers: Headers) -> StartPosition | None:
    """The position after the last event that the client has received."""
    values = [value.decode("latin-1").strip() for key, value in headers if key == b"last-event-id"]
    text = values[0] if values else ""
    if not text:
        return None
    digits = text.removeprefix("-")
    offset = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else LARGEST
    if not -1 <= offset < LARGEST:
        raise RequestError(400, f"Last-Event-ID is {shown(text)}, expected the offset of a message")
    return StartPosition(offset=offset + 1)


# -- both ------------------------------------------------------------------------------------------------


def _read_topic(text: str, context: SessionContext) -> str:
    try:
        topic = unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, "the topic in the path is not UTF-8") from error
    if not topic:
        raise RequestError(400, f"the path names no topic, as in {TOPICS}orders.1")
    _check_topic(topic, context)
    return topic


def _check_topic(topic: str, context: SessionContext) -> None:
    size, limit = len(topic.encode()), context.limits.topic_bytes
    if size > limit:
        raise RequestError(414, str(LimitError("a topic", size, limit, "limits.topic_bytes")))


def _read_fields(query: str, known: tuple[str, ...], several: str = "") -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        raise RequestError(400, "the query in the URL is not UTF-8") from error
    for key, value in pairs:
        if key not in (*known, "token"):
            raise RequestError(400, f"unknown field {shown(key)} in the URL, known are {', '.join(known)}, token")
        if key in fields and key != several:
            raise RequestError(400, f"{key} is twice in the URL")
        fields.setdefault(key, []).append(value)
    return fields


def _read_start(text: str, now: float) -> StartPosition | None:
    """None: only new messages."""
    found = parse_start(text, now)
    return None if found == "latest" else found


def _check_log(fields: dict[str, list[str]], start: StartPosition | None, context: SessionContext) -> None:
    """Offsets of another log are refused: they would skip messages, or repeat them."""
    [wanted] = fields.get("log", [context.log_id])
    if start and not context.has_log:
        raise RequestError(501, "this broker has no log; without from and Last-Event-ID, /events is live")
    if wanted != context.log_id:
        raise RequestError(412, f"log {shown(wanted)} is not the log of this broker, which is {context.log_id}")
    if start and start.offset is not None and start.offset > context.log_next():
        message = f"offset {start.offset:,} is past the end of the log, {context.log_next():,}"
        raise RequestError(412, f"{message}; is it the offset of another log?")


def _deny(guard: Guard, act: str, name: str) -> Page:
    return replace(to_denied_page(guard), detail=guard.denial_text(act, name))
