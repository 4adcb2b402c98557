"""The http listener: HTTP/1.1 for pages and topics, and WebSocket endpoints for dialects.

h11 parses the heads of requests and writes responses. It gets a head when it is complete and within the limit;
until then the head stays in the block, like the frames of any dialect. The head determines the response (`plans`).
Only the body of a publication is buffered. The body of any other request is dropped if it is short; otherwise the
connection is closed after the response.

A request whose response comes later suspends reading: the next request is read after the response.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import h11

from polycast.dialects.contract import Role, WebSocketEndpoint
from polycast.dialects.failure_codes import code_of
from polycast.dialects.first_line import METHOD
from polycast.dialects.session import Page, RequestSession, Session, SessionContext, opening
from polycast.dialects.web.bodies import HttpError, RequestBody, UnreadBodyError, check_payload
from polycast.dialects.web.event_stream import NAME, EventStreamSession
from polycast.dialects.web.handshake import with_path
from polycast.dialects.web.plans import Plan, Planner
from polycast.dialects.web.responses import phrase, write_page, write_stream_head
from polycast.dialects.web.topics import Query, TopicPublication
from polycast.dialects.web.upgrades import UNAUTHORIZED, AcceptedUpgrade, Endpoints
from polycast.errors import LimitError, PeerError, TimeoutPeerError
from polycast.model import (
    Block,
    Body,
    Burst,
    Closing,
    Event,
    PublishMessage,
    Received,
    Refused,
    Reply,
    Request,
    Upgrade,
)

HEAD_END = re.compile(rb"\n\r?\n")
HEAD_END_BYTES = 3
QUOTED = re.compile(r":? (?:bytearray\()?b['\"]")
"""Where a parse error quotes the request, which may have a token."""
HEADERS_AT_MOST = 100
"""The number of header lines of a request, continuation lines included."""
PIPELINED = 64
"""How many requests of one read are handled before the connection is closed."""
PIPELINED_WITHOUT_RIGHTS = 4
"""The same, for a peer without rights."""
DROPPED_BYTES = 64 * 1024
"""A longer body that nobody needs is not read."""


class HttpSession(RequestSession):
    handshake_done = False
    carries_messages = False
    accepts_token = True
    one_request = True

    def __init__(self, endpoints: Endpoints, context: SessionContext) -> None:
        super().__init__(context)
        self._planner = Planner(endpoints, context)
        self._context = context
        self._http = self._new_connection()
        self._request: h11.Request | None = None
        """The request that has no response yet."""
        self._body: RequestBody | None = None
        self._plan: Plan = UNAUTHORIZED
        self._cors: tuple[tuple[str, str], ...] = ()
        self._awaits_response = False
        """Whether the broker owes the response; nothing is read until then."""
        self._after: list[Event] = []
        """Events that follow a response of the broker."""
        self._waiting = 0
        """The bytes of an unfinished head."""

    @property
    def buffered_bytes(self) -> int:  # type: ignore[override]
        """The chunks of an unfinished body."""
        return len(self._body.data) if self._body else 0

    def _new_connection(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.line_bytes)

    def receive(self, block: Block, now: float) -> Received:
        if self._awaits_response:
            return Received([], 0)
        events, self._after = self._after, []
        if events and isinstance(events[-1], Closing):
            return Received(events, len(block))
        position = 0
        self._planner.pages.clear()
        try:
            for number in range(1, PIPELINED + 1):
                position, need, payload = self._read_request(block, position, now, events)
                if payload is None:
                    return Received(events, position, need)
                most = PIPELINED_WITHOUT_RIGHTS if self.guard.has_no_rights else PIPELINED
                events += self._respond(payload, number >= most, now)
                if self._awaits_response:
                    return Received(events, position)
                if isinstance(events[-1], Upgrade):
                    return _switch_session(events, events[-1].session, block, position, now)
                if isinstance(events[-1], Closing):
                    break
            return Received(events, len(block))
        except PeerError as error:
            return Received([*events, Closing(error)], len(block))

    def end(self, rest: Block, now: float) -> list[Event]:
        if self._awaits_response:
            return []
        return [Closing(HttpError(400, "an unfinished request"))] if rest or self._request else []

    def closing_bytes(self, error: PeerError | None) -> bytes:
        """No response unless a request has started."""
        no_request = not self._waiting and not self._request and isinstance(error, TimeoutPeerError | None)
        if no_request or self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        if isinstance(error, UnreadBodyError):
            return self._write(error.page, close=True)
        status, text = self._to_status(error)
        return self._write(Page(f"{text}\n".encode(), status=status), close=True)

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

    def _read_request(
        self, block: Block, position: int, now: float, events: list[Event]
    ) -> tuple[int, int, Block | None]:
        """The position after the bytes that were read, the bytes needed, and the body of a complete request."""
        if self._request is None:
            position = self._read_head(block, position)
            if self._request is None:
                return position, 0, None
            self._body = RequestBody(self._request, self._limits.payload_bytes)
            self._plan, self._cors = self._planner.plan(self._request, self.guard, now)
            if isinstance(self._plan, TopicPublication):
                self.handshake_done, self.body_since = True, now
                events += self._let_continue()
        assert self._body
        if isinstance(self._plan, TopicPublication):
            return self._body.read(block, position)
        if self._leaves_body():
            return position, 0, b""
        position, whole = self._body.drop(block, position)
        return position, 0, b"" if whole else None

    def _read_head(self, block: Block, position: int) -> int:
        if self._http.our_state is not h11.IDLE:
            self._http = self._new_connection()
        if position < len(block) and not METHOD.match(block, position):  # answered before the line is complete
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
        self._request = self._parse(with_path(bytes(block[position : end.end()])))
        if not self._request.http_version.startswith(b"1."):
            raise HttpError(505, f"HTTP/{self._request.http_version.decode()} is not supported, HTTP/1.1 is")
        return end.end()

    def _parse(self, head: bytes) -> h11.Request:
        try:
            self._http.receive_data(head)
            request = self._http.next_event()
        except h11.RemoteProtocolError as error:
            reason = QUOTED.split(str(error))[0]
            raise HttpError(error.error_status_hint, f"not HTTP/1.1: {reason}") from error
        assert isinstance(request, h11.Request)
        return request

    def _let_continue(self) -> list[Event]:
        if not self._http.they_are_waiting_for_100_continue:
            return []
        return [Reply(self._http.send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue")))]

    def _leaves_body(self) -> bool:
        """Whether the body is not read, so that the connection must close."""
        body, waits = self._body, self._http.they_are_waiting_for_100_continue
        if body is None or body.is_empty or isinstance(self._plan, TopicPublication):
            return False
        return waits or body.chunked or body.size > DROPPED_BYTES

    # -- responses ---------------------------------------------------------------------------------------

    def _respond(self, payload: Block, close: bool, now: float) -> list[Event]:
        plan = self._plan
        if self._leaves_body():
            page = plan if isinstance(plan, Page) else Page(b"a request for this has no body\n", status=400)
            return [Refused(phrase(page.status), detail=page.detail), Closing(UnreadBodyError(page))]
        self.handshake_done = True
        self.requests_served += 1
        self.body_since, self._body = 0.0, None
        match plan:
            case TopicPublication(topic, format_):
                if reason := check_payload(payload, format_):
                    return self._finish(Page(f"{reason}\n".encode(), status=400), close, now)
                self._awaits_response = True
                burst = Burst(NAME, payload, [0], [len(payload)], [topic], [format_], [1])
                return [PublishMessage(burst, (close, now))]
            case Query(route, body):
                self._awaits_response = True
                return [Request(route, (close, now), body)]
            case AcceptedUpgrade(dialect, session, headers):
                switch = h11.InformationalResponse(status_code=101, headers=headers, reason=phrase(101))
                return [Reply(self._http.send(switch)), Upgrade(dialect, session)]
            case EventStreamSession():
                return [Reply(write_stream_head(self._context.log_id, self._cors, now)), Upgrade(NAME, plan)]
        return self._finish(plan, close, now)

    def to_response(self, handle: tuple[bool, float], success: bool, body: Body) -> bytes:
        if success:
            page = Page(body.payload, "application/json")
        else:
            text = body.payload.decode(errors="replace")
            page = Page(f"{text}\n".encode(), status=code_of(text))
        self._awaits_response = False
        if self._http.our_state is not h11.SEND_RESPONSE:  # the broker stops, and has said so
            return b""
        events = self._finish(page, *handle)
        self._after = [event for event in events if not isinstance(event, Reply)]
        return b"".join([event.data for event in events if isinstance(event, Reply)])

    def _finish(self, page: Page, close: bool, now: float) -> list[Event]:
        """The response, and what follows from it."""
        events: list[Event] = [Reply(self._write(page, close, now))]
        if page.status >= 400:
            events.insert(0, Refused(phrase(page.status), detail=page.detail))
        if self._http.our_state is h11.MUST_CLOSE:
            events.append(Closing())
        self._request = None
        return events

    def _write(self, page: Page, close: bool, now: float | None = None) -> bytes:
        is_head = self._request is not None and self._request.method == b"HEAD"
        return write_page(self._http, page, self._cors, is_head, close, now)


def _switch_session(events: list[Event], session: Session, block: Block, position: int, now: float) -> Received:
    """The bytes after the request belong to the new session."""
    consumed, need, rest = position, 0, block[position:]
    events += opening(session)
    if rest:
        received = session.receive(rest, now)
        events += received.events
        consumed, need = position + received.consumed, received.frame_bytes
    return Received(events, consumed, need)


def to_http_role(endpoints: Iterable[WebSocketEndpoint]) -> Role:
    return Role("http", NAME, partial(HttpSession, Endpoints(endpoints)), default="tcp://127.0.0.1:8080")
