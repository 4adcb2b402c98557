"""HTTP responses: pages, and the head of an event stream."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus

import h11

from polycast.dialects.session import Page
from polycast.dialects.web.event_stream import CONTENT_TYPE

Fields = Sequence[tuple[str, str]]


def phrase(status: int) -> str:
    return HTTPStatus(status).phrase


def write_page(
    http: h11.Connection, page: Page, cors: Fields, is_head: bool, close: bool, now: float | None
) -> bytes:
    """`is_head`: the method was HEAD, so the response has no body."""
    content = (("Content-Type", page.content_type), ("Content-Length", str(len(page.body))))
    headers = [
        *(content if page.status != HTTPStatus.NO_CONTENT else ()),
        ("Cache-Control", "no-store"),
        *page.headers,
        *cors,
    ]
    if now is not None:
        headers.append(("Date", formatdate(now, usegmt=True)))
    if close:
        headers.append(("Connection", "close"))
    parts = [http.send(h11.Response(status_code=page.status, headers=headers, reason=phrase(page.status)))]
    if not is_head:
        parts.append(http.send(h11.Data(data=page.body)))
    return b"".join([*parts, http.send(h11.EndOfMessage())])


def write_stream_head(log_id: str, cors: Fields, now: float) -> bytes:
    """The head of a response that ends with the connection, which h11 would send in chunks."""
    headers = (
        ("Content-Type", CONTENT_TYPE),
        ("Cache-Control", "no-store"),
        ("X-Accel-Buffering", "no"),  # a proxy must not hold events back
        *([("Polycast-Log", log_id)] if log_id else ()),
        *cors,
        ("Date", formatdate(now, usegmt=True)),
        ("Connection", "close"),
    )
    lines = ["HTTP/1.1 200 OK", *(f"{key}: {value}" for key, value in headers)]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")
