"""The WebSocket handshake of a listening socket: one request, for the sub-protocol of its kind."""

from __future__ import annotations

from http import HTTPStatus

import h11

from polycast.dialects.nanomsg.dialect import DIALECT
from polycast.dialects.session import Page, Session, SessionContext
from polycast.dialects.web.handshake import with_path, words_of
from polycast.dialects.web.upgrades import AcceptedUpgrade, Endpoints, accept_upgrade
from polycast.errors import LimitError, PeerError, ProtocolError
from polycast.model import Block, Closing, Event, Received, Reply, Upgrade

HEAD_END = b"\r\n\r\n"
PROTOCOL = b"sec-websocket-protocol"
ENDPOINTS = Endpoints(DIALECT.endpoints)


class UpgradeSession(Session):
    """Reads one request; after it, the WebSocket session reads, or the connection is closed."""

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
        return Received(self._respond(request), after)

    def _respond(self, request: h11.Request) -> list[Event]:
        result = self._accept(request)
        if isinstance(result, AcceptedUpgrade):
            switch = h11.InformationalResponse(status_code=101, headers=result.headers, reason=_phrase(101))
            return [Reply(self._http.send(switch)), Upgrade(result.dialect, result.session)]
        reason = f"{result.status} to a request: {result.body.decode().strip()}"
        return [Reply(self._write(result)), Closing(ProtocolError(reason))]

    def _accept(self, request: h11.Request) -> Page | AcceptedUpgrade:
        """All other sub-protocols that the client offers are ignored."""
        offered = words_of(request.headers, PROTOCOL)
        if self._protocol not in offered:
            return Page(f"only the sub-protocol {self._protocol} is supported\n".encode(), status=400)
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
        response = h11.Response(status_code=page.status, headers=headers, reason=_phrase(page.status))
        parts = (response, h11.Data(data=page.body), h11.EndOfMessage())
        return b"".join([self._http.send(part) for part in parts])


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
