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


class Envelope(msgspec.Struct):
    """The body of a request that has its id in place of the route."""

    route: str
    body: Raw = NOTHING


class Offer(msgspec.Struct):
    """The body of a subscription that also offers to serve the route."""

    serve: bool = False


_messages = msgspec.json.Decoder(JsonMessage)
_envelopes = msgspec.json.Decoder(Envelope)
_offers = msgspec.json.Decoder(Offer)

# -- reading: `read_json` and `read_envelope` raise one of INVALID -----------------------------------------


def read_json(text: bytes) -> JsonMessage:
    check_utf8(text)
    return _messages.decode(text)


def read_envelope(text: bytes) -> Envelope:
    check_utf8(text)
    return _envelopes.decode(text)


def is_offer(body: bytes | Raw) -> bool:
    try:
        return _offers.decode(body).serve
    except INVALID:
        return False


# -- writing ----------------------------------------------------------------------------------------------


def to_frame(kind: int, name: bytes, body: bytes) -> bytes:
    return HEADER.pack(kind, len(name), len(body)) + name + body


def to_envelope(route: str, body: Body) -> bytes:
    return b'{"route":%b%b}' % (to_string(route), to_member(body))
