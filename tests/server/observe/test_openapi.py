"""The OpenAPI description, compared with the broker's responses: every path, method, status and schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from access.gate import write_config
from kit.broker import Broker
from kit.http import Response, get, read_response, request
from kit.wire import Peer
from polycast.server.observe.openapi import to_document

Json = dict[str, Any]
BAD = "Authorization: Bearer nonsense"


class Example(NamedTuple):
    path: str
    """In the description."""
    method: str
    status: int
    data: bytes


def post(topic: str, *headers: str, body: bytes = b"x") -> bytes:
    return request("POST", f"/topics/{topic}", f"Content-Length: {len(body)}", *headers, body=body)


TOPIC, EVENTS = "/topics/{name}", "/events"
LONG = "x" * 1025
EXAMPLES = [
    Example(TOPIC, "post", 200, post("open.a", "Content-Type: application/json", body=b"[1]")),
    Example(TOPIC, "post", 200, post("open.a", "Content-Type: text/plain")),
    Example(TOPIC, "post", 200, post("open.a", body=b"\xff")),
    Example(TOPIC, "post", 400, post("open.a", "Content-Type: application/json")),
    Example(TOPIC, "post", 401, post("open.a", BAD)),
    Example(TOPIC, "post", 403, post("closed")),
    Example(TOPIC, "post", 413, request("POST", "/topics/open.a", "Content-Length: 99999999")),
    Example(TOPIC, "post", 414, post(LONG)),
    Example(TOPIC, "post", 415, post("open.a", "Content-Encoding: br")),
    Example(TOPIC, "get", 200, get("/topics/open.a")),
    Example(TOPIC, "get", 400, get("/topics/open.a?limit=-1")),
    Example(TOPIC, "get", 401, get("/topics/open.a", BAD)),
    Example(TOPIC, "get", 403, get("/topics/closed")),
    Example(TOPIC, "get", 412, get("/topics/open.a?log=other")),
    Example(TOPIC, "get", 414, get(f"/topics/{LONG}")),
    Example(EVENTS, "get", 200, get("/events?pattern=open.a&from=earliest")),
    Example(EVENTS, "get", 400, get("/events")),
    Example(EVENTS, "get", 401, get("/events?pattern=open.a", BAD)),
    Example(EVENTS, "get", 403, get("/events?pattern=closed")),
    Example(EVENTS, "get", 412, get("/events?pattern=open.a", "Last-Event-ID: 99999999")),
    Example(EVENTS, "get", 414, get(f"/events?pattern={LONG}")),
    Example("/listeners", "get", 200, get("/listeners")),
    Example("/listeners", "get", 401, get("/listeners", BAD)),
    Example("/healthz", "get", 200, get("/healthz")),
    Example("/readyz", "get", 200, get("/readyz")),
    Example("/metrics", "get", 401, get("/metrics", BAD)),
    Example("/metrics", "get", 403, get("/metrics")),
    Example("/openapi.json", "get", 200, get("/openapi.json")),
]
FROM_LOOPBACK = [Example("/metrics", "get", 200, get("/metrics"))]
WITHOUT_RIGHTS = [Example("/listeners", "get", 403, get("/listeners"))]
WITHOUT_LOG = [
    Example(TOPIC, "get", 501, get("/topics/open.a")),
    Example(EVENTS, "get", 501, get("/events?pattern=open.a&from=earliest")),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("openapi")
    config = write_config(folder, "loopback may everything", "guest may publish+subscribe open.>")
    file = f"--listen=http=ipc://{folder}/http"
    with Broker(f"--config={config}", file, listen=("http", "hermod.sub"), data=folder) as started:
        yield started


def test_the_page_is_the_document(broker: Broker) -> None:
    with broker.connect("http") as peer:
        peer.send(get("/openapi.json"))
        assert json.loads(read_response(peer).body) == to_document()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each.method} {each.path} {each.status}")
def test_responses(broker: Broker, example: Example) -> None:
    with broker.connect("http") as peer:
        check(peer, example)


def test_responses_that_need_another_broker(broker: Broker, tmp_path: Path) -> None:
    with broker.connect_file("http") as peer:
        for example in FROM_LOOPBACK:
            check(peer, example)
    config = write_config(tmp_path, "guest may subscribe x over hermod")
    with Broker(f"--config={config}", listen=("http",)) as nothing, nothing.connect("http") as peer:
        for example in WITHOUT_RIGHTS:
            check(peer, example)
    with Broker(listen=("http",)) as without_log, without_log.connect("http") as peer:
        for example in WITHOUT_LOG:
            check(peer, example)


def test_every_response_of_the_description_has_an_example() -> None:
    described = {
        (path, method, status)
        for path, operations in to_document()["paths"].items()
        for method, operation in operations.items()
        if method != "parameters"
        for status in operation["responses"]
        if status != "default"
    }
    tried = EXAMPLES + FROM_LOOPBACK + WITHOUT_RIGHTS + WITHOUT_LOG
    assert described == {(each.path, each.method, str(each.status)) for each in tried}


# -- schemas -------------------------------------------------------------------------------------------------


def check(peer: Peer, example: Example) -> None:
    peer.send(example.data)
    described = to_document()["paths"][example.path][example.method]["responses"][str(example.status)]
    [(kind, content)] = described["content"].items()
    if (example.path, example.status) == (EVENTS, 200):
        assert peer.read_until(b"\r\n\r\n").count(f"Content-Type: {kind}\r\n".encode()) == 1
        check_events(peer)
        return
    response = read_response(peer)
    assert (response.status, response.headers["content-type"].partition(";")[0]) == (example.status, kind)
    check_value(to_value(response, kind), content["schema"])


def check_events(peer: Peer) -> None:
    """The data of messages is as described."""
    assert peer.read_until(b"\n\n").startswith(b"event: log\n")
    for _ in range(3):
        [data] = [line for line in peer.read_until(b"\n\n").decode().split("\n") if line.startswith("data: ")]
        check_value(json.loads(data.removeprefix("data: ")), {"$ref": "#/components/schemas/Message"})


def to_value(response: Response, kind: str) -> Any:
    return json.loads(response.body) if kind == "application/json" else response.body.decode()


TYPES = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}


def check_value(value: Any, schema: Json) -> None:
    """As much of JSON Schema as the description uses."""
    if "$ref" in schema:
        schema = to_document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "type" in schema:
        assert any(isinstance(value, TYPES[kind]) for kind in kinds), (value, schema)
    assert "enum" not in schema or value in schema["enum"]
    assert not isinstance(value, int) or value >= schema.get("minimum", value)
    if isinstance(value, list) and "items" in schema:
        for item in value:
            check_value(item, schema["items"])
    if isinstance(value, dict) and "type" in schema:
        check_members(value, schema)


def check_members(value: Json, schema: Json) -> None:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    assert set(schema.get("required", ())) <= set(value)
    for name, member in value.items():
        if name in properties:
            check_value(member, properties[name])
        else:
            assert others is not False, f"{name} is not described"
            if isinstance(others, dict):
                check_value(member, others)
