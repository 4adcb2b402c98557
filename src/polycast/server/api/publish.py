"""`polycast/publish`: publish one message by request, in the dialect of the requester or in another one.

    {"topic", "body"?, "format"?, "dialect"?}        {"offset", "sequence"}

In another dialect, only messages that a publisher of that dialect could send are accepted. Without formats in that
dialect, the payload is bytes.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from polycast.dialects.contract import PublishRules
from polycast.dialects.json_bodies import INVALID, NOTHING, compact, read_body
from polycast.dialects.registry import DIALECTS
from polycast.errors import LimitError
from polycast.model import Burst, Format, Limits
from polycast.server.dispatch.bodies import RouteError


class PublishRequest(Struct, forbid_unknown_fields=True):
    topic: str
    body: Raw = NOTHING
    format: Literal["bytes", "text", "json", "none"] | None = None
    dialect: str | None = None
    """None: the dialect of the requester."""


class Base64Body(Struct, forbid_unknown_fields=True):
    base64: str = msgspec.field(name="$base64")


def to_burst(request: PublishRequest, dialect: str, limits: Limits, tables: Mapping[str, Any]) -> Burst:
    """`dialect` is that of the requester, `tables` are the settings of dialects."""
    topic = request.topic.encode()
    payload, format_ = _to_payload(request.body, request.format)
    _check_size("a topic", len(topic), limits.topic_bytes, "limits.topic_bytes")
    _check_size("a payload", len(payload), limits.payload_bytes, "limits.payload_bytes")
    if request.dialect is None:
        return Burst.of(dialect, [(topic, payload, format_)])
    if request.dialect not in DIALECTS:
        raise RouteError(f"BadRequest: unknown dialect {request.dialect!r}, known are {', '.join(DIALECTS)}")
    rules = DIALECTS[request.dialect].publish_rules(tables.get(request.dialect))
    _check_rules(rules, request.dialect, topic, payload)
    return Burst.of(request.dialect, [(topic, payload, format_ if rules.formats else Format.BYTES)])


def _check_size(what: str, size: int, limit: int, setting: str) -> None:
    if size > limit:
        raise RouteError(f"TooLarge: {LimitError(what, size, limit, setting)}")


def _check_rules(rules: PublishRules, dialect: str, topic: bytes, payload: bytes) -> None:
    if not topic and not rules.empty_topic:
        raise RouteError(f"BadRequest: {dialect} has no empty topic")
    for what, data, excluded in (
        ("topic", topic, rules.topic_excludes),
        ("payload", payload, rules.payload_excludes),
    ):
        for byte in excluded:
            if byte in data:
                raise RouteError(f"BadRequest: a {what} of {dialect} cannot contain {chr(byte)!r}")


def _to_payload(raw: Raw, wanted: str | None) -> tuple[bytes, Format]:
    """The payload of a publication with this body, converted if the request names a format."""
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
        return a2b_base64(msgspec.json.decode(payload, type=Base64Body).base64, strict_mode=True)
    except (*INVALID, ValueError) as error:
        raise RouteError('BadRequest: bytes are a string or {"$base64": "..."}') from error
