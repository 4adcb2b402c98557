"""The client's side of `ubre`, over WebSocket: publications, subscriptions and requests on one connection.

Text, JSON and messages without a body are sent as JSON, bytes in binary; subscriptions are made in JSON. A ping
follows every block that must be acknowledged: after the pong, the broker has read the block.
"""

from __future__ import annotations

import inspect
import logging
import re
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from typing import Any

from polycast.address import WEB, Address
from polycast.dialects.client_requests import (
    Deferred,
    Handler,
    Response,
    check_body,
    check_handler,
    to_failure,
    to_response,
)
from polycast.dialects.client_session import ClientSession, Command, Credentials, PendingAcks, check_topic, utf8
from polycast.dialects.framing import Reading
from polycast.dialects.json_bodies import INVALID, NOTHING, check_utf8, compact, to_member, to_string
from polycast.dialects.session import SessionContext
from polycast.dialects.ubre.base_session import UbreTransport
from polycast.dialects.ubre.encoders import BINARY_FRAMES, JSON_FRAMES, NAME, OFFSET_FRAMES
from polycast.dialects.ubre.messages import (
    HEADER,
    NAME_BYTES_AT_MOST,
    PUBLISH,
    STREAMING,
    JsonMessage,
    read_number,
)
from polycast.dialects.ubre.session import UbreWebSocketSession
from polycast.dialects.web.client import WebSocketClient, to_close_frame, to_refusal
from polycast.dialects.web.handshake import ClientHandshake, to_host
from polycast.dialects.web.websocket import BINARY, PING, TEXT, to_masked_frame
from polycast.errors import UsageError
from polycast.model import Body, Burst, Event, Format, Limits, Message, Pattern, Request, RouteResponse

log = logging.getLogger("polycast.client")

PATH = "/ubre"
PING_FRAME = to_masked_frame(PING, b"")
LIMITS = Limits(payload_bytes=2**31, topic_bytes=2**16, line_bytes=2**20)
BASE64 = re.compile(rb'\{"\$base64":"((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"\}')


class UbreWebSocketClient(WebSocketClient, UbreWebSocketSession):
    transport = UbreTransport(
        JSON_FRAMES, OFFSET_FRAMES, BINARY_FRAMES, partial(to_masked_frame, TEXT), partial(to_masked_frame, BINARY)
    )  # fmt: skip

    def _handle_message(self, message: JsonMessage, reading: Reading) -> None:
        """A publication with its position is a burst of its own."""
        if message.publish is NOTHING or message.offset is NOTHING:
            super()._handle_message(message, reading)
            return
        burst = Burst.of(NAME, [(self._read_topic(message.publish), *self._read_payload(message.body))])
        burst.offset, burst.micros = read_number(message.offset), read_number(message.time)
        burst.sequences = [read_number(message.sequence)]
        reading.add(burst)


class UbreClientSession(ClientSession):
    dialect = NAME
    one_way = False
    pattern_bytes = NAME_BYTES_AT_MOST

    def __init__(self, address: Address, publishing: bool, credentials: Credentials) -> None:
        super().__init__(address, publishing, credentials)
        path = address.path if address.scheme in WEB else ""
        self._handshake = ClientHandshake(to_host(address), path.rstrip("/") or PATH, token=self.credentials.token)
        self._session = UbreWebSocketClient(SessionContext(LIMITS, "ws"))
        self._upgraded = False
        self._requests = 0

    # -- writing -----------------------------------------------------------------------------------------

    def open(self) -> Command:
        return Command(self._handshake.request, self.expect_ack(PendingAcks()))

    def encode(self, message: Message) -> bytes:
        topic = utf8(message.topic)
        if len(topic) > NAME_BYTES_AT_MOST:
            raise UsageError(f"ubre carries topics of {NAME_BYTES_AT_MOST:,} bytes at most, not {len(topic):,}")
        if message.format is Format.BYTES:
            # a length of 0 means no body, which differs from an empty body
            head = HEADER.pack(PUBLISH, len(topic), len(message.payload) or STREAMING)
            return self._session.transport.to_binary(head + topic + message.payload)
        _check_format(message)
        member = to_member(Body(message.payload, message.format))
        return self._session.transport.to_json(b'{"publish":%b%b}' % (to_string(message.topic), member))

    def to_block(self, block: bytes, count: int, acks: PendingAcks) -> bytes:
        self.expect_ack(acks, count)
        return block + PING_FRAME

    def check_pattern(self, pattern: Pattern) -> None:
        check_topic(pattern, NAME)

    def to_subscribe(self, patterns: list[Pattern]) -> Command:
        commands = [b'{"subscribe":%b,"body":{"offsets":true}}' % to_string(pattern.value) for pattern in patterns]
        return Command(
            b"".join(map(self._session.transport.to_json, commands)) + PING_FRAME, self.expect_ack(PendingAcks())
        )

    def to_request(self, route: str, body: Body) -> tuple[bytes, int]:
        utf8(route)
        check_body(body)
        self._requests += 1
        self.responses[self._requests] = None
        return self._session.to_request(self._requests, route, body), self._requests

    def to_offer(self, route: str, handler: Handler) -> Command:
        utf8(route)
        check_handler(handler, self.defers)
        self.routes[route] = handler
        offer = b'{"subscribe":%b,"body":{"serve":true,"offsets":true}}' % to_string(route)
        return Command(self._session.transport.to_json(offer) + PING_FRAME, self.expect_ack(PendingAcks()))

    def closing_bytes(self) -> bytes:
        return to_close_frame()

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, block: bytes) -> tuple[int, int]:
        after = 0
        if not self._upgraded:
            after = self._handshake.read(block)
            if not after:
                return 0, 0
            self._upgraded = True
            self.handle_ack()
        received = self._session.receive(block[after:], 0.0)
        for event in received.events:
            self.handle(event)
        for _ in range(self._session.take_pongs()):
            self.handle_ack()
        self.refusal = self.refusal or to_refusal(self._session.close_payload, self.address)
        self.closing = self._session.close_payload is not None
        return after + received.consumed, received.frame_bytes

    def handle(self, event: Event) -> None:
        match event:
            case Burst():
                self.deliver(map(_plain, _with_positions(event)))
            case RouteResponse(number, success, body) if number in self.responses:
                self.responses[number] = Response(success, body)
            case Request(route, handle, body):
                self._reply += self._respond(route, handle, body)
            case _:
                super().handle(event)

    def _respond(self, route: str, handle: Any, body: Body) -> bytes:
        handler = self.routes.get(route)
        if handler is None:
            return self._session.to_response(handle, *to_failure("NotFound"))
        result: Any
        try:
            result = handler(body)
        except Exception as error:
            result = error
        if self.defers and inspect.isawaitable(result):
            self.deferred.append(Deferred(route, handle, result))
            return b""
        return self.to_late_response(route, handle, result)

    def to_late_response(self, route: str, handle: Any, result: Any) -> bytes:
        try:
            if isinstance(result, Exception):
                raise result
            return self._session.to_response(handle, *to_response(result))
        except Exception as error:
            log.exception("a request for %s failed", route)
            return self._session.to_response(handle, *to_failure(str(error) or type(error).__name__))


def _check_format(message: Message) -> None:
    """A payload that is not of its format would arrive as another one."""
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


def _plain(message: Message) -> Message:
    """Bytes that are no text arrive as {"$base64": ...}."""
    match = BASE64.fullmatch(message.payload) if message.format is Format.JSON else None
    return message._replace(payload=b64decode(match[1]), format=Format.BYTES) if match else message


def _with_positions(burst: Burst) -> Iterator[Message]:
    if burst.offset < 0:
        return burst.messages()
    return (
        message._replace(sequence=burst.sequences[0], offset=burst.offset, time=burst.micros / 1e6)
        for message in burst.messages()
    )
