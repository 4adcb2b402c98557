"""What requests carry, as Python values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from polycast.model import Body, Format

NO_BODY = Body()


class Answer(NamedTuple):
    """What became of a request. `success` is whether whoever answered says that it went well."""

    success: bool
    body: Body

    @property
    def value(self) -> Any:
        return from_body(self.body)


Handler = Callable[[Body], Body]
"""From the body of a request to that of its answer. What it raises makes the answer a failure."""


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
