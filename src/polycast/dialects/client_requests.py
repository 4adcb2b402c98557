"""Requests of a client: bodies as Python values, responses and handlers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from polycast.errors import UsageError
from polycast.model import Body, Format

NO_BODY = Body()


class Response(NamedTuple):
    """The response to a request. `success` is false if the handler failed or the route is unknown."""

    success: bool
    body: Body

    @property
    def value(self) -> Any:
        """The body as a Python value: str, bytes, a decoded JSON value, or None without a body."""
        return from_body(self.body)


Handler = Callable[[Body], Body | Response | Awaitable[Body | Response]]
"""From the body of a request to the body of its response, or to a `Response`, which may be a failure.

An exception, or a result of another type, becomes a failure. The client calls it while it reads, and reads nothing
else until it returns. A handler of an asyncio client may be `async`: any number of requests are handled at once.
"""


class Deferred(NamedTuple):
    """A request whose handler is `async`."""

    route: str
    handle: Any
    result: Awaitable[Any]


def to_body(value: Any) -> Body:
    """str and bytes as they are, any other value as JSON. `NO_BODY` is no body; None is the null of JSON."""
    if isinstance(value, bytes):
        return Body(value, Format.BYTES)
    if isinstance(value, str):
        return Body(value.encode(), Format.TEXT)
    return Body(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), Format.JSON)


def from_body(body: Body) -> Any:
    """None without a body, and for the null of JSON."""
    match body.format:
        case Format.NONE:
            return None
        case Format.TEXT:
            return body.payload.decode()
        case Format.JSON:
            return json.loads(body.payload)
        case _:
            return body.payload


def check_body(body: Any) -> None:
    if not isinstance(body, Body):
        raise UsageError(f"{type(body).__name__} is not a Body", "to_body(value) makes one")
    if not isinstance(body.payload, bytes) or not isinstance(body.format, Format):
        raise UsageError("a Body holds bytes and a Format, nothing else", "to_body(value) makes one")


def check_handler(handler: Any, defers: bool) -> None:
    """`defers`: the client can await a response."""
    if not callable(handler):
        raise UsageError(f"{handler!r} cannot handle requests: it is no function")
    if inspect.iscoroutinefunction(handler) and not defers:
        hint = "a plain function can, and a client of connect_async takes both"
        raise UsageError(f"{handler!r} cannot handle requests: it is async", hint)


def to_response(result: Any) -> Response:
    """From the result of a handler."""
    if inspect.iscoroutine(result):
        result.close()  # avoids a warning: it will never be awaited
    response = result if isinstance(result, Response) else Response(True, result)
    check_body(response.body)
    return response


def to_failure(message: str) -> Response:
    return Response(False, Body(message.encode(errors="replace"), Format.TEXT))
