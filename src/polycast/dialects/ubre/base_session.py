"""The messages of UBRE, independent of the transport.

A message is read, checked against the limits, and becomes an event. A response has the encoding of its request, a
request the encoding in which its route was offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Raw

from polycast.dialects import json_bodies
from polycast.dialects.framing import Reading
from polycast.dialects.json_bodies import INVALID, NOTHING
from polycast.dialects.session import RequestSession, SessionContext
from polycast.dialects.ubre import messages
from polycast.dialects.ubre.messages import JsonMessage, SubscribeOptions
from polycast.dialects.web import websocket
from polycast.dialects.web.websocket import WebSocketError
from polycast.errors import LimitError
from polycast.model import (
    Body,
    Encoder,
    Event,
    Exact,
    Format,
    Limits,
    Refused,
    Reply,
    Request,
    RouteResponse,
    Subscribe,
    Unsubscribe,
)

NUMBER = re.compile(rb"0|[1-9][0-9]{0,17}")
MALFORMED_AT_MOST = 10
"""The connection is closed after this number of malformed messages."""
BAD_REQUEST = Body(b"BadRequest", Format.TEXT)


class Handle(NamedTuple):
    """Identifies a request: its id as received, and whether it was binary."""

    id: bytes
    binary: bool


class UbreTransport(NamedTuple):
    """The encoders and frames of a transport."""

    json_encoder: Encoder
    offset_encoder: Encoder
    """JSON with the offset, sequence and time of each publication."""
    binary_encoder: Encoder
    to_json: Callable[[bytes], bytes]
    to_binary: Callable[[bytes], bytes]


class NotTextError(Exception):
    """A topic or a route is no JSON string."""


class UbreBaseSession(RequestSession):
    transport: UbreTransport

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._has_log = context.has_log
        self._malformed = 0
        self._binary_routes: set[str] = set()
        """Routes that the peer offered in binary: its requests are binary, too."""

    def to_request(self, number: int, route: str, body: Body) -> bytes:
        if route in self._binary_routes:
            envelope = messages.to_envelope(route, body)
            return self.transport.to_binary(messages.to_frame(messages.REQUEST, b"%d" % number, envelope))
        text = b'{"request":%b,"id":%d%b}' % (json_bodies.to_string(route), number, json_bodies.to_member(body))
        return self.transport.to_json(text)

    def to_response(self, handle: Handle, success: bool, body: Body) -> bytes:
        if handle.binary:
            kind = messages.SUCCESS if success else messages.FAIL
            response = body.payload if body.format is Format.BYTES else json_bodies.to_json(*body)
            return self.transport.to_binary(messages.to_frame(kind, handle.id, response))
        word = b"success" if success else b"fail"
        return self.transport.to_json(b'{"%b":%b%b}' % (word, handle.id, json_bodies.to_member(body)))

    # -- messages ----------------------------------------------------------------------------------------

    def handle_json(self, text: bytes, reading: Reading) -> None:
        try:
            self._handle_message(messages.read_json(text), reading)
        except NotTextError:
            self._refuse("topic not a string", reading)
        except INVALID:
            self._refuse("malformed JSON", reading)

    def _refuse(self, reason: str, reading: Reading) -> None:
        reading.add(Refused(reason))
        self._malformed += 1
        if self._malformed == MALFORMED_AT_MOST:
            message = f"{MALFORMED_AT_MOST} messages that cannot be read, the last for: {reason}"
            raise WebSocketError(websocket.INVALID, message)

    def _handle_message(self, message: JsonMessage, reading: Reading) -> None:
        """The first of these keys determines the kind of the message; other keys are ignored."""
        if message.subscribe is not NOTHING:
            options = messages.read_options(message.body)
            reading.add(self._subscribe(self._read_topic(message.subscribe).decode(), options, binary=False))
        elif message.unsubscribe is not NOTHING:
            reading.add(self._unsubscribe(self._read_topic(message.unsubscribe).decode()))
        elif message.publish is not NOTHING:
            reading.add_message(self._read_topic(message.publish), *self._read_payload(message.body))
        elif message.request is not NOTHING:
            reading.add(self._read_request(message))
        elif message.success is not NOTHING:
            reading.add(_to_response_event(bytes(message.success), True, _read_body(message.body)))
        elif message.fail is not NOTHING:
            reading.add(_to_response_event(bytes(message.fail), False, _read_body(message.body)))
        else:
            reading.add(Refused("unknown message"))

    def handle_frame(self, kind: int, name: bytes, body: bytes | None, reading: Reading) -> None:
        """Lengths have been checked. None: no body."""
        if kind == messages.PUBLISH:
            reading.add_message(name, *_to_body(body))
        elif kind == messages.REQUEST:
            reading.add(self._open_envelope(Handle(name, True), body or b""))
        elif kind in (messages.SUCCESS, messages.FAIL):
            reading.add(_to_response_event(name, kind == messages.SUCCESS, _to_body(body)))
        else:
            reading.add(self._handle_subscription(kind, name, body))

    def _handle_subscription(self, kind: int, name: bytes, body: bytes | None) -> Event:
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return Refused("subscription not UTF-8")
        if kind == messages.UNSUBSCRIBE:
            return self._unsubscribe(topic)
        return self._subscribe(topic, messages.read_options(body), binary=True)

    def _subscribe(self, topic: str, options: SubscribeOptions, *, binary: bool) -> Event:
        if options.serve:
            (self._binary_routes.add if binary else self._binary_routes.discard)(topic)
        json = self.transport.offset_encoder if options.offsets and self._has_log else self.transport.json_encoder
        return Subscribe(Exact(topic), self.transport.binary_encoder if binary else json, options.serve)

    def _unsubscribe(self, topic: str) -> Event:
        self._binary_routes.discard(topic)
        return Unsubscribe(Exact(topic))

    # -- requests ----------------------------------------------------------------------------------------

    def _read_request(self, message: JsonMessage) -> Event:
        if message.id is NOTHING:
            handle = Handle(self._check_id(message.request), False)
            return self._open_envelope(handle, bytes(message.body))
        handle = Handle(self._check_id(message.id), False)
        try:
            route = self._read_topic(message.request)
        except NotTextError:
            return self._refuse_request(handle)
        return Request(route.decode(), handle, _read_body(message.body))

    def _open_envelope(self, handle: Handle, text: bytes) -> Event:
        try:
            envelope = messages.read_envelope(text)
            body = _read_body(envelope.body)
        except INVALID:
            return self._refuse_request(handle)
        self.check_name("a route", len(envelope.route.encode()))
        return Request(envelope.route, handle, body)

    def _refuse_request(self, handle: Handle) -> Reply:
        return Reply(self.to_response(handle, False, BAD_REQUEST))

    # -- names and bodies --------------------------------------------------------------------------------

    def _read_topic(self, raw: Raw) -> bytes:
        text = bytes(raw)
        if text[0] != json_bodies.QUOTE:
            raise NotTextError
        topic = json_bodies.read_string(text)
        self.check_name("a topic", len(topic))
        return topic

    def _check_id(self, raw: Raw) -> bytes:
        self.check_name("a request id", len(bytes(raw)))
        return bytes(raw)

    def check_name(self, what: str, size: int) -> None:
        if size > self._limits.topic_bytes:
            raise LimitError(what, size, self._limits.topic_bytes, "limits.topic_bytes")

    def _read_payload(self, raw: Raw) -> tuple[bytes, Format]:
        payload, format_ = json_bodies.read_body(raw)
        self.check_body(messages.PUBLISH, len(payload))
        return payload, format_

    def body_limit(self, kind: int) -> int:
        """The body of a publication is a payload; those of requests and responses may contain one."""
        return self._limits.payload_bytes if kind == messages.PUBLISH else message_limit(self._limits)

    def check_body(self, kind: int, size: int) -> None:
        limit = self.body_limit(kind)
        if size > limit:
            raise LimitError("a body", size, limit, "limits.payload_bytes")


def message_limit(limits: Limits) -> int:
    """Room for a payload in base64 and the message around it."""
    return limits.payload_bytes * 4 // 3 + limits.line_bytes


def _read_body(raw: Raw) -> Body:
    return Body(*json_bodies.read_body(raw))


def _to_body(payload: bytes | None) -> Body:
    return Body() if payload is None else Body(payload, Format.BYTES)


def _to_response_event(name: bytes, success: bool, body: Body) -> Event:
    """Ids of the broker's requests are numbers; any other id is unknown."""
    if NUMBER.fullmatch(name) is None:
        return Refused("response without a request")
    return RouteResponse(int(name), success, body)
