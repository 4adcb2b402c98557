"""The messages of UBRE: one JSON object, or one binary frame, and how their bodies are those of the model.

    {"publish": "topic", "body": any JSON}
    type 1 byte | name length 2 bytes | body length 4 bytes | name | body          big endian

JSON is never taken apart further than UBRE needs: a body's numbers, escapes and order of keys are what they were.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64

import msgspec
from msgspec import Raw

from polycast.model import Block, Body, Format

HEADER = struct.Struct("!BHI")
SUBSCRIBE, PUBLISH, REQUEST, SUCCESS, FAIL, UNSUBSCRIBE = b"SPRsfU"
KINDS = b"SPRsfU"
STREAMING = 0xFFFFFFFF
"""The length of a body that ends where its message ends, or its stream."""
NAME_BYTES_AT_MOST = 0xFFFF

NOTHING = Raw()
"""The value of a key that is not there."""
BLANKS = b" \t\r\n"
QUOTE = ord('"')
BACKSLASH = ord("\\")
TEXT, JSON, NONE = Format.TEXT, Format.JSON, Format.NONE
"""To look up a member of an enum takes longer than the rest of reading a short body."""

INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a text that is no JSON can raise; the last for values nested deeper than Python's stack."""


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
    """The body of a request that carries its id where others name their route."""

    route: str
    body: Raw = NOTHING


class Offer(msgspec.Struct):
    """The body of a subscription that is also an offer to answer."""

    serve: bool = False


_messages = msgspec.json.Decoder(JsonMessage)
_envelopes = msgspec.json.Decoder(Envelope)
_offers = msgspec.json.Decoder(Offer)
_strings = msgspec.json.Decoder(str)
to_string = msgspec.json.Encoder().encode

# -- reading: each raises one of INVALID ------------------------------------------------------------------


def read_json(text: bytes) -> JsonMessage:
    check_utf8(text)
    return _messages.decode(text)


def read_envelope(text: bytes) -> Envelope:
    check_utf8(text)
    return _envelopes.decode(text)


def check_utf8(text: bytes) -> None:
    """The decoder looks at no more than it must, and strings inside of a body it only skips."""
    if not text.isascii():
        text.decode()


def read_string(text: bytes) -> bytes:
    """The UTF-8 of what a JSON string says."""
    return text[1:-1] if BACKSLASH not in text else _strings.decode(text).encode()


def read_body(raw: Raw) -> tuple[bytes, Format]:
    """A string is text, whatever else is JSON, and a body that is not there is none."""
    if raw is NOTHING:
        return b"", NONE
    text = bytes(raw)
    if text[0] == QUOTE:
        return read_string(text), TEXT
    return compact(text), JSON


def compact(text: Block) -> bytes:
    """The same JSON with no white space between its parts."""
    return msgspec.json.format(text, indent=-1)


def is_offer(body: bytes | Raw) -> bool:
    try:
        return _offers.decode(body).serve
    except INVALID:
        return False


# -- writing ----------------------------------------------------------------------------------------------


def to_json(payload: bytes, format_: Format) -> bytes:
    """A payload as a JSON value; nothing for none. What only claims to be JSON is taken for bytes."""
    if format_ is NONE:
        return b""
    if format_ is JSON:
        try:
            check_utf8(payload)
            return compact(payload)
        except INVALID:
            pass
    try:
        return to_string(payload.decode())
    except UnicodeDecodeError:
        return b'{"$base64":"%b"}' % b2a_base64(payload, newline=False)


def to_member(body: Body) -> bytes:
    """The body as the last member of an object that has others before it."""
    text = to_json(*body)
    return b',"body":' + text if text else b""


def to_frame(kind: int, name: bytes, body: bytes) -> bytes:
    return HEADER.pack(kind, len(name), len(body)) + name + body


def to_envelope(route: str, body: Body) -> bytes:
    return b'{"route":%b%b}' % (to_string(route), to_member(body))
