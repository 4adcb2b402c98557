"""The hint of a refusal: the right that a command needs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from polycast.errors import RefusedError
from polycast.model import RESERVED_PREFIX

FORBIDDEN = 403
DENIALS = (401, FORBIDDEN, 1008)
"""Codes of hermod, statuses of HTTP, and the code that closes a WebSocket."""
ADMIN = "admin"
MANAGED = (RESERVED_PREFIX, "spark/")
ROUTES = {
    "polycast/publish": "publish TOPIC",
    "polycast/history": "subscribe PATTERN",
    "spark/sql": "query PATTERN",
}
"""The routes of the broker that need another right than `admin`."""


def right_to_request(route: str) -> str:
    return ROUTES.get(route) or (ADMIN if route.startswith(MANAGED) else f"publish {route}")


@contextmanager
def needing(*rights: str) -> Iterator[None]:
    """Adds the hint to a refusal for want of a right, such as `publish chat`."""
    try:
        yield
    except RefusedError as error:
        if error.code in DENIALS and not error.hint:
            rules = " and ".join(f"'IDENTITY may {right}'" for right in rights)
            flags = " ".join(map(_to_flag, rights))
            error.hint = (
                f"this needs {rules} in access.rules of the broker, or a token in POLYCAST_TOKEN with the right: "
                f"polycast token new NAME {flags}"
            )
        raise


def _to_flag(right: str) -> str:
    action, _, pattern = right.partition(" ")
    return f"--{action} {shlex.quote(pattern)}" if pattern else f"--{action}"
