"""What requests carry, as Python values, and what those who answer them may say."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from polycast.errors import UsageError
from polycast.model import Body, Format

NO_BODY = Body()


class Response(NamedTuple):
    """What became of a request. `success` is whether whoever answered says that it went well."""

    success: bool
    body: Body

    @property
    def value(self) -> Any:
        """The body as a Python value: text, bytes, what JSON says, or None where there is no body."""
        return from_body(self.body)


Handler = Callable[[Body], Body | Response]
"""From the body of a request to that of its answer, or to an `Response` that may be a failure.

What it raises makes the answer a failure, and so does a result that is neither. It is called while somebody reads,
and nothing else is read until it returns.
"""


def to_body(value: Any) -> Body:
    """Text and bytes as they are, anything else as JSON. `NO_BODY` is no body at all; None is JSON's null."""
    if isinstance(value, bytes):
        return Body(value, Format.BYTES)
    if isinstance(value, str):
        return Body(value.encode(), Format.TEXT)
    return Body(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), Format.JSON)


def from_body(body: Body) -> Any:
    """None for no body, as for a JSON null."""
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
        raise UsageError(f"{type(body).__name__} where a Body belongs", "to_body(value) makes one")
    if not isinstance(body.payload, bytes) or not isinstance(body.format, Format):
        raise UsageError("a Body holds bytes and a Format, nothing else", "to_body(value) makes one")


def check_handler(handler: Any) -> None:
    if not callable(handler):
        raise UsageError(f"{handler!r} cannot answer requests: it is no function")
    if inspect.iscoroutinefunction(handler):
        raise UsageError(f"{handler!r} cannot answer requests: it is async", "a plain function can")


def to_response(result: Any) -> Response:
    """What a handler returned."""
    if inspect.iscoroutine(result):
        result.close()  # it will never be awaited, which Python would warn of
    answer = result if isinstance(result, Response) else Response(True, result)
    check_body(answer.body)
    return answer


def to_failure(words: str) -> Response:
    return Response(False, Body(words.encode(errors="replace"), Format.TEXT))
