"""The http listener: HTTP/1.1 for pages, and WebSocket endpoints for dialects.

h11 parses requests and writes responses. It gets a request when the head is complete and within the limit; until
then the head stays in the block, like the frames of any dialect. Bodies are read and dropped; chunked bodies are
refused, because no page takes a body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from urllib.parse import unquote

import h11

from polycast.dialects.contract import Role, WebSocketEndpoint
from polycast.dialects.session import Page, Session, SessionContext, opening
from polycast.dialects.web.handshake import with_path, words_of
from polycast.dialects.web.upgrades import (
    UNAUTHORIZED,
    UPGRADE,
    AcceptedUpgrade,
    Endpoints,
    accept_upgrade,
    refuse_origin,
    to_denied_page,
    to_token,
    wants_websocket,
)
from polycast.errors import LimitError, PeerError, ProtocolError, TimeoutPeerError
from polycast.model import Block, Closing, Event, Received, Refused, Reply, Upgrade

NAME = "http"
HEAD_END = re.compile(rb"\n\r?\n")
HEAD_END_BYTES = 3
FIRST_PRINTABLE = 0x21
REASON_CHARACTERS = 120
"""How many characters of a parse error the response has."""
OPEN = ("/healthz", "/readyz")
"""Pages for health probes, which need no rights."""
HEADERS_AT_MOST = 100
"""The number of header lines of a request, continuation lines included."""
QUERY_FIELDS_AT_MOST = 100
PIPELINED = 64
"""How many requests of one read are handled before the connection is closed."""
PIPELINED_WITHOUT_RIGHTS = 4
"""The same, for a peer without rights."""


class HttpError(ProtocolError):
    """`status` is that of the response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpSession(Session):
    handshake_done = False
    carries_messages = False
    accepts_token = True

    def __init__(self, endpoints: Endpoints, context: SessionContext) -> None:
        super().__init__(context)
        self._endpoints = endpoints
        self._context = context
        self._http = self._new_connection()
        self._request: h11.Request | None = None
        """The request whose body is being read."""
        self._waiting = 0
        """The bytes of an unfinished head."""
        self._pages: dict[str, Page | None] = {}
        """The pages of one read: pipelined requests for one page share it."""

    def _new_connection(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.line_bytes)

    def receive(self, block: Block, now: float) -> Received:
        events: list[Event] = []
        position = 0
        self._pages.clear()
        try:
            for number in range(1, PIPELINED + 1):
                position, whole = self._read_request(block, position, events)
                if not whole:
                    return Received(events, position)
                most = PIPELINED_WITHOUT_RIGHTS if self.guard.has_no_rights else PIPELINED
                events += self._respond(number >= most, now)
                if isinstance(events[-1], Upgrade):
                    return _hand_over(events, events[-1].session, block, position, now)
                if isinstance(events[-1], Closing):
                    break
            return Received(events, len(block))
        except PeerError as error:
            return Received([*events, Closing(error)], len(block))

    def end(self, rest: Block, now: float) -> list[Event]:
        return [Closing(HttpError(400, "an unfinished request"))] if rest or self._request else []

    def closing_bytes(self, error: PeerError | None) -> bytes:
        """No response unless a request has started."""
        no_request = not self._waiting and not self._request and isinstance(error, TimeoutPeerError | None)
        if no_request or self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        status, text = self._to_status(error)
        head = self._request is not None and self._request.method == b"HEAD"
        return self._write(Page(f"{text}\n".encode(), status=status), head, close=True)

    def _to_status(self, error: PeerError | None) -> tuple[int, str]:
        match error:
            case None:
                return 503, "the broker stops"
            case HttpError():
                return error.status, str(error)
            case LimitError():
                return 413 if self._request else 431, str(error)
            case TimeoutPeerError():
                return 408, str(error)
        return 400, str(error)

    # -- requests ----------------------------------------------------------------------------------------

    def _read_request(self, block: Block, position: int, events: list[Event]) -> tuple[int, bool]:
        """The position after the bytes that were read, and whether the request is complete."""
        try:
            if self._request is None:
                position = self._read_head(block, position)
                if self._request is None:
                    return position, False
                self._check_body(self._request)
                events += self._let_continue()
            return self._read_body(block, position)
        except h11.RemoteProtocolError as error:
            reason = str(error).replace("bytearray(b", "(")[:REASON_CHARACTERS]
            raise HttpError(error.error_status_hint, f"not HTTP/1.1: {reason}") from error

    def _read_head(self, block: Block, position: int) -> int:
        if self._http.our_state is not h11.IDLE:
            self._http = self._new_connection()
        if position < len(block) and block[position] < FIRST_PRINTABLE:
            raise HttpError(400, f"not HTTP/1.1: a request cannot begin with the byte {block[position]:#04x}")
        limit = self._limits.line_bytes
        begin = position + max(0, self._waiting - HEAD_END_BYTES)
        end = HEAD_END.search(block, begin, position + limit)
        if end is None:
            self._waiting = len(block) - position
            if self._waiting > limit:
                raise LimitError("the head of a request", self._waiting, limit, "limits.line_bytes")
            return position
        self._waiting = 0
        lines = block.count(b"\n", position, end.start())
        if lines > HEADERS_AT_MOST:
            raise HttpError(431, f"{lines:,} headers, the limit is {HEADERS_AT_MOST:,}")
        self._http.receive_data(with_path(bytes(block[position : end.end()])))
        request = self._http.next_event()
        assert isinstance(request, h11.Request)
        self._request = request
        if not request.http_version.startswith(b"1."):
            raise HttpError(505, f"HTTP/{request.http_version.decode()} is not supported, HTTP/1.1 is")
        return end.end()

    def _check_body(self, request: h11.Request) -> None:
        """Refuses a body that is too large, or chunked, before it is read."""
        if words_of(request.headers, b"transfer-encoding"):
            raise HttpError(411, "a chunked body; Content-Length is required")
        limit = self._limits.payload_bytes
        for size in map(int, words_of(request.headers, b"content-length")):
            if size > limit:
                raise LimitError("the body of a request", size, limit, "limits.payload_bytes")

    def _let_continue(self) -> list[Event]:
        if not self._http.they_are_waiting_for_100_continue:
            return []
        return [Reply(self._http.send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue")))]

    def _read_body(self, block: Block, position: int) -> tuple[int, bool]:
        given = position == len(block)
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.EndOfMessage):
                return (len(block) - len(self._http.trailing_data[0]) if given else position), True
            if event is h11.NEED_DATA:
                if given:
                    return len(block), False
                self._http.receive_data(bytes(block[position:]))
                given = True

    # -- responses ---------------------------------------------------------------------------------------

    def _respond(self, close: bool, now: float) -> list[Event]:
        request, self._request = self._request, None
        assert request is not None
        self.handshake_done = True
        self.requests_served += 1
        found = self._find(request)
        if isinstance(found, AcceptedUpgrade):
            switch = h11.InformationalResponse(status_code=101, headers=found.headers, reason=_phrase(101))
            return [Reply(self._http.send(switch)), Upgrade(found.dialect, found.session)]
        events: list[Event] = [Reply(self._write(found, request.method == b"HEAD", close, now))]
        if found.status >= 400:
            events.insert(0, Refused(_phrase(found.status), detail=found.detail))
        if self._http.our_state is h11.MUST_CLOSE:
            events.append(Closing())
        return events

    def _find(self, request: h11.Request) -> Page | AcceptedUpgrade:
        authority, target = _divide(request.target.decode())
        path, _, query = target.partition("?")
        if query.count("&") >= QUERY_FIELDS_AT_MOST:
            return Page(f"more than {QUERY_FIELDS_AT_MOST:,} query fields\n".encode(), status=400)
        path = unquote(path)
        upgrading = wants_websocket(request.headers) and request.http_version != b"1.0"
        probe = not upgrading and path in OPEN
        return refuse_origin(request.headers, authority, self._context, self.guard, probe) or self._look_up(
            request, path, query, upgrading
        )

    def _look_up(self, request: h11.Request, path: str, query: str, upgrading: bool) -> Page | AcceptedUpgrade:
        is_open = not upgrading and (path in OPEN or path in self._context.public_pages)
        if not is_open and not self.guard.authenticate(to_token(request.headers, query)):
            return UNAUTHORIZED
        if upgrading:
            return accept_upgrade(
                self._endpoints, request.method, request.headers, path, query, self._context, self.guard
            )
        if request.method not in (b"GET", b"HEAD"):
            return Page(b"pages are for GET and HEAD\n", status=405, headers=(("Allow", "GET, HEAD"),))
        self.guard.set_dialect(NAME)
        if not is_open and not self.guard.admin:
            return to_denied_page(self.guard)
        if path not in self._pages:
            self._pages[path] = self._context.pages(path)
        if page := self._pages[path]:
            return page
        if path in self._endpoints.by_path:
            return Page(f"no page here: {self._endpoints}\n".encode(), status=426, headers=UPGRADE)
        return Page(b"no such page\n", status=404)

    def _write(self, page: Page, head: bool, close: bool, now: float | None = None) -> bytes:
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(page.body))),
            ("Cache-Control", "no-store"),
            *page.headers,
        ]
        if now is not None:
            headers.append(("Date", formatdate(now, usegmt=True)))
        if close:
            headers.append(("Connection", "close"))
        http = self._http
        parts = [http.send(h11.Response(status_code=page.status, headers=headers, reason=_phrase(page.status)))]
        if not head:
            parts.append(http.send(h11.Data(data=page.body)))
        return b"".join([*parts, http.send(h11.EndOfMessage())])


def _hand_over(events: list[Event], session: Session, block: Block, position: int, now: float) -> Received:
    """The bytes after the request belong to the new session."""
    consumed, need, rest = position, 0, block[position:]
    events += opening(session)
    if rest:
        received = session.receive(rest, now)
        events += received.events
        consumed, need = position + received.consumed, received.frame_bytes
    return Received(events, consumed, need)


def _divide(target: str) -> tuple[str, str]:
    """The host, if the target is a whole URL as for a proxy, and the path."""
    if target.startswith("/"):
        return "", target
    _, mark, rest = target.partition("://")
    host, _, path = rest.partition("/")
    return host, "/" + path if mark else ""


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase


def to_http_role(endpoints: Iterable[WebSocketEndpoint]) -> Role:
    return Role("http", NAME, partial(HttpSession, Endpoints(endpoints)), default="tcp://127.0.0.1:8080")
