"""`polycast/publish`: a message by request, from whoever asks, or as if it came in another dialect.

    {"topic", "body"?, "format"?, "dialect"?}        {"offset", "sequence"}

As another dialect it is what that dialect could have said: names that it cannot write are refused, and where it
knows no formats the payload is bytes.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from polycast.dialects.ubre.messages import INVALID, NOTHING, compact, read_body
from polycast.errors import LimitError
from polycast.model import Burst, Format, Limits
from polycast.server.api.bodies import RouteError


class Publishing(Struct, forbid_unknown_fields=True):
    topic: str
    body: Raw = NOTHING
    format: Literal["bytes", "text", "json", "none"] | None = None
    dialect: Literal["simplest", "hermod", "fanout", "nanomsg", "ubre"] | None = None
    """Without, that of the connection which asks."""


class Encoded(Struct, forbid_unknown_fields=True):
    base64: str = msgspec.field(name="$base64")


class Tongue(NamedTuple):
    """What a dialect can say."""

    topic: bytes = b""
    """Bytes that no topic of it has."""
    payload: bytes = b""
    """Bytes that no payload of it has."""
    empty: bool = True
    """Whether a topic may be empty."""
    formats: bool = False


TONGUES = {
    "simplest": Tongue(topic=b" \r\n", empty=False),
    "hermod": Tongue(),
    "fanout": Tongue(topic=b" !\r\n", payload=b"\n", empty=False),
    "nanomsg": Tongue(topic=b"|"),
    "ubre": Tongue(formats=True),
}


def to_burst(asked: Publishing, dialect: str, limits: Limits) -> Burst:
    topic = asked.topic.encode()
    payload, format_ = _to_payload(asked.body, asked.format)
    _check_size("a topic", len(topic), limits.topic_bytes, "limits.topic_bytes")
    _check_size("a payload", len(payload), limits.payload_bytes, "limits.payload_bytes")
    if asked.dialect is None:
        return Burst.of(dialect, [(topic, payload, format_)])
    tongue = TONGUES[asked.dialect]
    _check_said(tongue, asked.dialect, topic, payload)
    return Burst.of(asked.dialect, [(topic, payload, format_ if tongue.formats else Format.BYTES)])


def _check_size(what: str, size: int, limit: int, setting: str) -> None:
    if size > limit:
        raise RouteError(f"TooLarge: {LimitError(what, size, limit, setting)}")


def _check_said(tongue: Tongue, dialect: str, topic: bytes, payload: bytes) -> None:
    if not topic and not tongue.empty:
        raise RouteError(f"BadRequest: {dialect} has no empty topic")
    for what, text, never in (("topic", topic, tongue.topic), ("payload", payload, tongue.payload)):
        for byte in never:
            if byte in text:
                raise RouteError(f"BadRequest: {dialect} cannot say a {what} with {chr(byte)!r} in it")


def _to_payload(raw: Raw, wanted: str | None) -> tuple[bytes, Format]:
    """The same as a publication has, unless the request says which format it is meant to have."""
    payload, found = read_body(raw)
    if wanted is None or wanted == found:
        return payload, found
    if wanted == Format.JSON and found is Format.TEXT:
        return compact(bytes(raw)), Format.JSON
    if wanted == Format.BYTES and found is Format.TEXT:
        return payload, Format.BYTES
    if wanted == Format.BYTES and found is Format.JSON:
        return _from_base64(payload), Format.BYTES
    raise RouteError(f'BadRequest: a body that is {found} cannot be published as "{wanted}"')


def _from_base64(payload: bytes) -> bytes:
    try:
        return a2b_base64(msgspec.json.decode(payload, type=Encoded).base64, strict_mode=True)
    except (*INVALID, ValueError) as error:
        raise RouteError('BadRequest: bytes are a string or {"$base64": "..."}') from error
