"""Bodies of requests to the broker itself, and the error that fails one."""

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
    """Fails a request; the text goes to the requester."""


class NoFields(Struct, forbid_unknown_fields=True):
    pass


def read_request(body: Body, kind: type[T]) -> T:
    """The body of a request as a struct. An empty body stands for an empty object."""
    if body.format not in (Format.NONE, Format.JSON):
        raise RouteError("BadRequest: expected an object as the body")
    try:
        return msgspec.json.decode(body.payload or b"{}", type=kind)
    except INVALID as error:
        raise RouteError(f"BadRequest: {error}") from error


def check_request(check: Callable[..., U], *args: Any) -> U:
    """Calls a function whose errors are the fault of the requester."""
    try:
        return check(*args)
    except (UsageError, ProtocolError) as error:
        raise RouteError(f"BadRequest: {error}") from error


def to_json_body(value: Any) -> Body:
    return Body(msgspec.json.encode(value), Format.JSON)
