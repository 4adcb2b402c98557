"""The client's side of `ubre`, over WebSocket: publications, subscriptions and requests on one connection.

Text, JSON and messages without a body go out as JSON, bytes in binary; subscriptions are made in JSON. Behind
whatever should be known to have arrived goes a ping: with the pong, all that came before it has been read.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from functools import partial
from typing import Any

from polycast.address import WEB, Address
from polycast.client.requests import Handler, Response, check_body, check_handler, to_failure, to_response
from polycast.client.side import Receipt, Said, Side, check_topic, utf8
from polycast.client.websocket import Attentive, to_farewell, to_refusal
from polycast.dialects.base import SessionContext
from polycast.dialects.ubre.encoders import BINARY_FRAMES, JSON_FRAMES, NAME
from polycast.dialects.ubre.messages import (
    HEADER,
    INVALID,
    NAME_BYTES_AT_MOST,
    PUBLISH,
    STREAMING,
    check_utf8,
    compact,
    to_member,
    to_string,
)
from polycast.dialects.ubre.sessions import UbreWebSocketSession
from polycast.dialects.ubre.speaker import Wire
from polycast.dialects.web.handshake import ClientHandshake
from polycast.dialects.web.websocket import BINARY, PING, TEXT, to_masked_frame
from polycast.errors import UsageError
from polycast.model import Body, Burst, Event, Format, Limits, Message, Pattern, Request
from polycast.model import Response as Answered

log = logging.getLogger("polycast.client")

PATH = "/ubre"
PING_FRAME = to_masked_frame(PING, b"")
LIMITS = Limits(payload_bytes=2**31, topic_bytes=2**16, line_bytes=2**20)
BASE64 = re.compile(rb'\{"\$base64":"((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"\}')


class ClientSession(Attentive, UbreWebSocketSession):
    wire = Wire(
        JSON_FRAMES, BINARY_FRAMES, partial(to_masked_frame, TEXT), partial(to_masked_frame, BINARY)
    )  # fmt: skip


class UbreSide(Side):
    dialect = NAME
    one_way = False
    pattern_bytes = NAME_BYTES_AT_MOST

    def __init__(self, address: Address, publishing: bool) -> None:
        super().__init__(address, publishing)
        host = str(Address("tcp", address.host or "localhost", address.port)).removeprefix("tcp://")
        path = address.path if address.scheme in WEB else ""
        self._handshake = ClientHandshake(host, path.rstrip("/") or PATH, token=self.credentials.token)
        self._session = ClientSession(SessionContext(LIMITS, "ws"))
        self._upgraded = False
        self._requests = 0
        self._handlers: dict[str, Handler] = {}

    # -- saying ------------------------------------------------------------------------------------------

    def open(self) -> Said:
        return Said(self._handshake.request, self.owe(Receipt()))

    def encode(self, message: Message) -> bytes:
        topic = utf8(message.topic)
        if len(topic) > NAME_BYTES_AT_MOST:
            raise UsageError(f"ubre carries topics of {NAME_BYTES_AT_MOST:,} bytes at most, not {len(topic):,}")
        if message.format is Format.BYTES:
            return self._session.wire.to_binary(_to_publication(topic, message.payload))
        _check_format(message)
        member = to_member(Body(message.payload, message.format))
        return self._session.wire.to_json(b'{"publish":%b%b}' % (to_string(message.topic), member))

    def to_block(self, block: bytes, count: int, receipt: Receipt) -> bytes:
        self.owe(receipt, count)
        return block + PING_FRAME

    def check_pattern(self, pattern: Pattern) -> None:
        check_topic(pattern, NAME)

    def to_asks(self, patterns: list[Pattern]) -> Said:
        asks = [b'{"subscribe":%b}' % to_string(pattern.value) for pattern in patterns]
        return Said(b"".join(map(self._session.wire.to_json, asks)) + PING_FRAME, self.owe(Receipt()))

    def to_request(self, route: str, body: Body) -> tuple[bytes, int]:
        utf8(route)
        check_body(body)
        self._requests += 1
        self.answers[self._requests] = None
        return self._session.to_request(self._requests, route, body), self._requests

    def to_offer(self, route: str, handler: Handler) -> Said:
        utf8(route)
        check_handler(handler)
        self._handlers[route] = handler
        offer = b'{"subscribe":%b,"body":{"serve":true}}' % to_string(route)
        return Said(self._session.wire.to_json(offer) + PING_FRAME, self.owe(Receipt()))

    def closing_bytes(self) -> bytes:
        return to_farewell()

    # -- hearing -----------------------------------------------------------------------------------------

    def read(self, block: bytes) -> tuple[int, int]:
        after = 0
        if not self._upgraded:
            after = self._handshake.read(block)
            if not after:
                return 0, 0
            self._upgraded = True
            self.settle()
        received = self._session.receive(block[after:], 0.0)
        for event in received.events:
            self.handle(event)
        for _ in range(self._session.take_pongs()):
            self.settle()
        self.goodbye = self.goodbye or to_refusal(self._session.goodbye, self.address)
        return after + received.consumed, received.need

    def handle(self, event: Event) -> None:
        match event:
            case Burst():
                self.hear(map(_plain, event.messages()))
            case Answered(number, success, body) if number in self.answers:
                self.answers[number] = Response(success, body)
            case Request(route, handle, body):
                self._reply += self._answer(route, handle, body)
            case _:
                super().handle(event)

    def _answer(self, route: str, handle: Any, body: Body) -> bytes:
        handler = self._handlers.get(route)
        if handler is None:
            return self._session.to_response(handle, *to_failure("NotFound"))
        try:
            return self._session.to_response(handle, *to_response(handler(body)))
        except Exception as error:
            log.exception("a request for %s failed", route)
            return self._session.to_response(handle, *to_failure(str(error) or type(error).__name__))


def _check_format(message: Message) -> None:
    """What is not what it says it is would arrive as something else."""
    try:
        if message.format is Format.JSON:
            check_utf8(message.payload)
            compact(message.payload)
        elif message.format is Format.TEXT:
            message.payload.decode()
        elif message.payload:
            raise UsageError("ubre cannot carry a message of the format none that has a payload")
    except INVALID as error:
        raise UsageError(f"ubre cannot carry a message of the format {message.format}: {error}") from error


def _to_publication(topic: bytes, payload: bytes) -> bytes:
    """A length of 0 would be no body at all, which is not the same as one without bytes."""
    return HEADER.pack(PUBLISH, len(topic), len(payload) or STREAMING) + topic + payload


def _plain(message: Message) -> Message:
    """Bytes that are no text come as JSON of this one form."""
    match = BASE64.fullmatch(message.payload) if message.format is Format.JSON else None
    return Message(message.topic, b64decode(match[1])) if match else message
