"""JSON values of the wire: bodies to and from the payloads of the model, and values in error messages.

JSON is parsed no further than needed: a body keeps its numbers, its escapes and the order of its keys.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import Any

import msgspec
from msgspec import Raw

from polycast.model import Block, Body, Format

NOTHING = Raw()
"""The value of a missing key of type `Raw`."""
UNSET = msgspec.UNSET
BLANKS = b" \t\r\n"
QUOTE = ord('"')
BACKSLASH = ord("\\")
TEXT, JSON, NONE = Format.TEXT, Format.JSON, Format.NONE
"""Module constants: a lookup in the enum takes longer than the rest of reading a short body."""
SHOWN_CHARACTERS = 60
CONTAINERS: dict[type, str] = {list: "a list", dict: "an object"}
"""Values that error messages do not quote: they can be deeply nested."""

INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of reading invalid JSON; the last for values that are nested deeper than Python's stack."""

_strings = msgspec.json.Decoder(str)
_values = msgspec.json.Decoder(Raw)
to_string = msgspec.json.Encoder().encode


# -- reading: each raises one of INVALID ------------------------------------------------------------------


def check_utf8(text: bytes) -> None:
    """The decoder skips strings inside of a body without a check."""
    if not text.isascii():
        text.decode()


def check_value(text: Block) -> None:
    """Whether the text is one JSON value; `check_utf8` comes first."""
    _values.decode(text)


def read_string(text: bytes) -> bytes:
    """The UTF-8 of a JSON string."""
    return text[1:-1] if BACKSLASH not in text else _strings.decode(text).encode()


def read_body(raw: Raw) -> tuple[bytes, Format]:
    """A string becomes text, any other value JSON, a missing one nothing."""
    if raw is NOTHING:
        return b"", NONE
    text = bytes(raw)
    if text[0] == QUOTE:
        return read_string(text), TEXT
    return compact(text), JSON


def compact(text: Block) -> bytes:
    """The same JSON without white space between its tokens."""
    return msgspec.json.format(text, indent=-1)


# -- writing ----------------------------------------------------------------------------------------------


def to_json(payload: bytes, format_: Format) -> bytes:
    """A payload as a JSON value, empty for the format none. Invalid JSON is written as bytes."""
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
    """The body as the last member of an object that has other members."""
    text = to_json(*body)
    return b',"body":' + text if text else b""


# -- error messages ---------------------------------------------------------------------------------------


def shown(value: Any, most: int = SHOWN_CHARACTERS) -> str:
    """For one line of an error message: control characters escaped, long values cut."""
    return "missing" if value is UNSET else cut(CONTAINERS.get(type(value)) or repr(value), most)


def cut(text: str, most: int = SHOWN_CHARACTERS) -> str:
    return text[:most] + "..." * (len(text) > most)
