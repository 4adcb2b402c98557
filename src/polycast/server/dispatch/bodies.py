"""What requests to the broker carry, and what is said where that cannot be answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from polycast.dialects.json_bodies import INVALID
from polycast.errors import ProtocolError, UsageError
from polycast.model import Body, Format

T = TypeVar("T")
U = TypeVar("U")


class RouteError(Exception):
    """Why there is no answer, in the words that the requester gets."""


class Nothing(Struct, forbid_unknown_fields=True):
    pass


def read_asked(body: Body, kind: type[T]) -> T:
    """The body of a request to the broker. Whoever needs to say nothing may leave it out."""
    if body.format not in (Format.NONE, Format.JSON):
        raise RouteError("BadRequest: expected an object as the body")
    try:
        return msgspec.json.decode(body.payload or b"{}", type=kind)
    except INVALID as error:
        raise RouteError(f"BadRequest: {error}") from error


def checked(check: Callable[..., U], *args: Any) -> U:
    """What it returns; what it finds wrong is the requester's mistake."""
    try:
        return check(*args)
    except (UsageError, ProtocolError) as error:
        raise RouteError(f"BadRequest: {error}") from error


def to_json_body(value: Any) -> Body:
    return Body(msgspec.json.encode(value), Format.JSON)
