"""How a WebSocket begins where a socket listens: one request, for the sub-protocol of its kind."""

from __future__ import annotations

from http import HTTPStatus

import h11

from polycast.dialects.nanomsg.dialect import DIALECT
from polycast.dialects.session import Page, Session, SessionContext
from polycast.dialects.web.endpoints import AcceptedUpgrade, Endpoints, accept_upgrade
from polycast.dialects.web.handshake import with_path, words_of
from polycast.errors import LimitError, PeerError, ProtocolError
from polycast.model import Block, Closing, Event, Received, Reply, Upgrade

HEAD_END = b"\r\n\r\n"
PROTOCOL = b"sec-websocket-protocol"
ENDPOINTS = Endpoints(DIALECT.endpoints)


class DoorSession(Session):
    """Whatever was asked for, the request is the last thing that this session reads."""

    handshake_done = False

    def __init__(self, context: SessionContext, protocol: str) -> None:
        super().__init__(context)
        self._context = context
        self._protocol = protocol
        self._http = h11.Connection(h11.SERVER)

    def receive(self, block: Block, now: float) -> Received:
        limit = self._limits.line_bytes
        end = block.find(HEAD_END, 0, limit)
        if end < 0:
            if len(block) <= limit:
                return Received([], 0)
            error: PeerError = LimitError("the head of a request", len(block), limit, "limits.line_bytes")
            return Received([Closing(error)], len(block))
        after = end + len(HEAD_END)
        try:
            self._http.receive_data(with_path(bytes(block[:after])))
            request = self._http.next_event()
        except h11.RemoteProtocolError as broken:
            error = ProtocolError(f"not HTTP/1.1: {broken}")
            return Received([Closing(error)], len(block))
        assert isinstance(request, h11.Request)
        return Received(self._answer(request), after)

    def _answer(self, request: h11.Request) -> list[Event]:
        answer = self._knock(request)
        if isinstance(answer, AcceptedUpgrade):
            switch = h11.InformationalResponse(status_code=101, headers=answer.headers, reason=_phrase(101))
            return [Reply(self._http.send(switch)), Upgrade(answer.dialect, answer.session)]
        reason = f"{answer.status} to a request: {answer.body.decode().strip()}"
        return [Reply(self._write(answer)), Closing(ProtocolError(reason))]

    def _knock(self, request: h11.Request) -> Page | AcceptedUpgrade:
        """Of the sub-protocols that were offered, all but ours are passed over."""
        offered = words_of(request.headers, PROTOCOL)
        if self._protocol not in offered:
            return Page(f"only the sub-protocol {self._protocol} is spoken here\n".encode(), status=400)
        others = [(name, value) for name, value in request.headers if name != PROTOCOL]
        headers = [*others, (PROTOCOL, self._protocol.encode())]
        return accept_upgrade(ENDPOINTS, request.method, headers, "", "", self._context)

    def _write(self, page: Page) -> bytes:
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(page.body))),
            ("Connection", "close"),
            *page.headers,
        ]
        answer = h11.Response(status_code=page.status, headers=headers, reason=_phrase(page.status))
        parts = (answer, h11.Data(data=page.body), h11.EndOfMessage())
        return b"".join([self._http.send(part) for part in parts])


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
