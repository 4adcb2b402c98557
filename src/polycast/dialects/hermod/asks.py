"""Requests in `hermod`: something is asked of the broker, or of whoever serves that route in another dialect.

    peer -> broker   {"ask": ROUTE, "id": I, "body": any JSON}
    broker -> peer   {"status": "OK", "id": I, "format": F, "payload_size": N}PAYLOAD LF
                     {"status": "ERROR", "id": I, "code": C, "message": M} LF

`body` may be missing. An answer comes when it is there, whatever else was said meanwhile: its id tells what it
answers, and no other answer has one.
"""

from __future__ import annotations

import msgspec

from polycast.dialects.hermod.headers import Header, HermodError, to_natural, to_topic
from polycast.dialects.json_values import UNSET, shown
from polycast.model import Body, Format, Limits, Request

LARGEST_ID = 2**63 - 1
CODES = {
    "BadRequest": 400,
    "Forbidden": 403,
    "NotFound": 404,
    "TooLarge": 413,
    "NotKept": 501,
    "Busy": 503,
    "Gone": 503,
    "Timeout": 504,
}
"""By the word that a failure begins with; any other is a 500."""


def to_request(header: Header, limits: Limits) -> Request:
    route = to_topic(header.ask, "ask", limits)
    number = to_natural(header.id, "id")
    if number > LARGEST_ID:
        raise HermodError(400, f"id is {shown(number)}, expected no more than {LARGEST_ID:,}")
    return Request(route, number, _to_body(header.body))


def _to_body(raw: msgspec.Raw | msgspec.UnsetType) -> Body:
    """A string is text, anything else JSON."""
    if raw is UNSET:
        return Body()
    try:
        if bytes(raw)[:1] == b'"':
            return Body(msgspec.json.decode(raw, type=str).encode(), Format.TEXT)
        return Body(msgspec.json.format(bytes(raw), indent=-1), Format.JSON)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise HermodError(400, f"body is no JSON: {error}") from error


def to_response(number: int, success: bool, body: Body) -> bytes:
    if success:
        head = b'{"status": "OK", "id": %d, "format": "%b", "payload_size": %d}'
        return head % (number, body.format.encode(), len(body.payload)) + body.payload + b"\n"
    message = body.payload.decode(errors="replace")
    code = CODES.get(message.partition(":")[0], 500)
    head = b'{"status": "ERROR", "id": %d, "code": %d, "message": %b}\n'
    return head % (number, code, msgspec.json.encode(message))
