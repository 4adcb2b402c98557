"""The OpenAPI description of the http listener: the page `/openapi.json`, and the file in docs/reference."""

from __future__ import annotations

import json
from typing import Any

from polycast.dialects.session import Page
from polycast.dialects.web.event_stream import CONTENT_TYPE
from polycast.dialects.web.topics import COMMITTED, LIMIT, LIVE, PATTERNS_AT_MOST
from polycast.model import Format
from polycast.version import VERSION

PATH = "/openapi.json"

Json = dict[str, Any]

INTEGER: Json = {"type": "integer", "minimum": 0}
TEXT: Json = {"type": "string"}
POSITION = "earliest, latest, @OFFSET, a sequence of the topic, -10m (s, m, h, d) or a time (ISO 8601, UTC)"

REFUSALS = {
    400: "an invalid topic, position, pattern, limit or body",
    401: "no valid token",
    403: "no right, or a page of a site that is not in access.origins",
    412: "the offset belongs to another log",
    413: "the body exceeds limits.payload_bytes",
    414: "the topic exceeds limits.topic_bytes",
    415: "a charset other than UTF-8, or a Content-Encoding",
    501: "the broker has no log",
}


def to_document() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Polycast",
            "version": VERSION,
            "description": "Publish, read and subscribe over HTTP. Refusals are one line of text.",
        },
        "security": [{}, {"header": []}, {"query": []}],
        "paths": {
            "/topics/{name}": {"parameters": [NAME], "post": _post(), "get": _get()},
            "/events": {"get": _events()},
            "/listeners": {"get": _page("the listeners of the broker", "application/json", LISTENERS, 401, 403)},
            "/healthz": {"get": _page("ok while the broker runs", "text/plain", TEXT)},
            "/readyz": {"get": _page("ready; 503 with the reasons if it is not", "text/plain", TEXT)},
            "/metrics": {"get": _page("metrics for Prometheus", "text/plain", TEXT, 401, 403)},
            PATH: {"get": _page("this description", "application/json", {"type": "object"})},
        },
        "components": {
            "schemas": {"Message": MESSAGE, "Gap": GAP},
            "securitySchemes": {
                "header": {"type": "http", "scheme": "bearer"},
                "query": {"type": "apiKey", "in": "query", "name": "token"},
            },
        },
    }


def _object(properties: Json, optional: tuple[str, ...] = ()) -> Json:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


MESSAGE = _object(
    {
        "offset": {"type": ["integer", "null"], "description": "position in the log; null without a log"},
        "sequence": {**INTEGER, "description": "position in the topic"},
        "time": {"type": "string", "format": "date-time"},
        "topic": TEXT,
        "format": {"type": "string", "enum": [format_.value for format_ in Format]},
        "payload": {"description": "a JSON value in the format json, null in the format none, otherwise a string"},
        "payload_base64": {"type": "string", "description": "instead of payload, if that is not UTF-8"},
    },
    optional=("payload", "payload_base64"),
)
GAP = _object({"first": INTEGER, "next": INTEGER, "reason": TEXT})
POSITIONS = _object({"offset": {"type": ["integer", "null"]}, "sequence": INTEGER})
MESSAGES = _object(
    {
        "messages": {"type": "array", "items": {"$ref": "#/components/schemas/Message"}},
        "next": {**INTEGER, "description": "the next page is from=@next"},
        "log": {"type": "string", "description": "the id of the log"},
        "gaps": {"type": "array", "items": {"$ref": "#/components/schemas/Gap"}},
    },
    optional=("gaps",),
)
LISTENERS = _object(
    {
        "node": TEXT,
        "version": TEXT,
        "listeners": {"type": "object", "additionalProperties": {"type": "array", "items": TEXT}},
    }
)


def _in(place: str, name: str, schema: Json, meaning: str, *, required: bool = False) -> Json:
    return {"in": place, "name": name, "schema": schema, "description": meaning, "required": required}


NAME = _in("path", "name", TEXT, "a topic, percent-encoded", required=True)
FROM = _in("query", "from", TEXT, POSITION)
LOG = _in("query", "log", TEXT, "the id of the log that the position belongs to; another log is 412")


def _post() -> Json:
    content = {kind: {"schema": schema} for kind, schema in (("application/json", {}), ("text/plain", TEXT))}
    return {
        "operationId": "publish",
        "summary": "publish the body",
        "requestBody": {"content": {**content, "application/octet-stream": {}}},
        "responses": _responses("durable", "application/json", POSITIONS, 400, 401, 403, 413, 414, 415),
    }


def _get() -> Json:
    limit = {"type": "integer", "minimum": 1, "maximum": LIMIT, "default": 100}
    return {
        "operationId": "read",
        "summary": "read messages of one topic from the log",
        "parameters": [FROM, LOG, _in("query", "limit", limit, "the most messages of the response")],
        "responses": _responses("messages", "application/json", MESSAGES, 400, 401, 403, 412, 414, 501),
    }


def _events() -> Json:
    pattern = {"type": "array", "items": TEXT, "minItems": 1, "maxItems": PATTERNS_AT_MOST}
    last = _in("header", "Last-Event-ID", {"type": "integer"}, "continue after the event with this id")
    choices = {"type": "string", "enum": [COMMITTED, LIVE], "default": COMMITTED}
    delivery = _in("query", "delivery", choices, "messages when they are durable, or at once")
    meaning = "foo exact, foo.> begins with foo., ~foo contains, > everything"
    return {
        "operationId": "subscribe",
        "summary": "subscribe: a stream of server-sent events",
        "parameters": [_in("query", "pattern", pattern, meaning, required=True), FROM, LOG, delivery, last],
        "responses": _responses("events", CONTENT_TYPE, TEXT, 400, 401, 403, 412, 414, 501),
    }


def _page(meaning: str, kind: str, schema: Json, *refusals: int) -> Json:
    return {"summary": meaning, "responses": _responses(meaning, kind, schema, *refusals)}


def _responses(meaning: str, kind: str, schema: Json, *refusals: int) -> Json:
    found: Json = {"200": {"description": meaning, "content": {kind: {"schema": schema}}}}
    texts: Json = {str(status): REFUSALS[status] for status in refusals}
    texts["default"] = "the broker is busy, stops, or could not write or read; the reason is in the body"
    content = {"text/plain": {"schema": TEXT}}
    return found | {status: {"description": text, "content": content} for status, text in texts.items()}


PAGE = Page(json.dumps(to_document(), indent=1).encode() + b"\n", "application/json")
