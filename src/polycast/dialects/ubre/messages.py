"""The messages of UBRE: one JSON object, or one binary frame.

{"publish": "topic", "body": any JSON}
type 1 byte | name length 2 bytes | body length 4 bytes | name | body          big endian
"""

from __future__ import annotations

import struct

import msgspec
from msgspec import Raw

from polycast.dialects.json_bodies import INVALID, NOTHING, check_utf8, to_member, to_string
from polycast.model import Body

HEADER = struct.Struct("!BHI")
SUBSCRIBE, PUBLISH, REQUEST, SUCCESS, FAIL, UNSUBSCRIBE = b"SPRsfU"
KINDS = b"SPRsfU"
STREAMING = 0xFFFFFFFF
"""The length of a streamed body: it ends with its WebSocket message, or with the stream."""
NAME_BYTES_AT_MOST = 0xFFFF


class JsonMessage(msgspec.Struct, gc=False):
    subscribe: Raw = NOTHING
    unsubscribe: Raw = NOTHING
    publish: Raw = NOTHING
    request: Raw = NOTHING
    success: Raw = NOTHING
    fail: Raw = NOTHING
    id: Raw = NOTHING
    body: Raw = NOTHING
    offset: Raw = NOTHING
    sequence: Raw = NOTHING
    time: Raw = NOTHING


class Envelope(msgspec.Struct):
    """The body of a request that has its id in place of the route."""

    route: str
    body: Raw = NOTHING


class SubscribeOptions(msgspec.Struct):
    """The body of a subscription."""

    serve: bool = False
    """Whether the subscriber also offers to serve the route."""
    offsets: bool = False
    """Whether publications in JSON have their offset, sequence and time."""


NO_OPTIONS = SubscribeOptions()


_messages = msgspec.json.Decoder(JsonMessage)
_envelopes = msgspec.json.Decoder(Envelope)
read_number = msgspec.json.Decoder(int).decode
_options = msgspec.json.Decoder(SubscribeOptions)

# -- reading: `read_json` and `read_envelope` raise one of INVALID -----------------------------------------


def read_json(text: bytes) -> JsonMessage:
    check_utf8(text)
    return _messages.decode(text)


def read_envelope(text: bytes) -> Envelope:
    check_utf8(text)
    return _envelopes.decode(text)


def read_options(body: bytes | Raw | None) -> SubscribeOptions:
    """A body of another form is ignored."""
    try:
        return NO_OPTIONS if body is None or body is NOTHING else _options.decode(body)
    except INVALID:
        return NO_OPTIONS


# -- writing ----------------------------------------------------------------------------------------------


def to_frame(kind: int, name: bytes, body: bytes) -> bytes:
    return HEADER.pack(kind, len(name), len(body)) + name + body


def to_envelope(route: str, body: Body) -> bytes:
    return b'{"route":%b%b}' % (to_string(route), to_member(body))
