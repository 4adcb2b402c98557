"""Requests in `hermod`: the responses, and how a client reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialects.feed import feed
from polycast.address import parse_address
from polycast.dialects.client_requests import Response, to_body
from polycast.dialects.client_session import Credentials
from polycast.dialects.hermod.client import HermodClientSession
from polycast.dialects.hermod.encoders import to_response
from polycast.dialects.hermod.session import HermodSession
from polycast.errors import UsageError
from polycast.model import Body, Format, Limits, Request

BODIES = [
    Body(),
    Body(b"[1, 2]", Format.JSON),
    Body(b"text with {braces} and \n", Format.TEXT),
    Body(b'\x00\xff{"status": "OK"}\n', Format.BYTES),
    Body(b"x" * 100_000, Format.BYTES),
]


def session() -> HermodClientSession:
    return HermodClientSession(parse_address("tcp://127.0.0.1:1"), publishing=True, credentials=Credentials())


def request_of(data: bytes) -> Request:
    feeder = feed("hermod.pub", Limits(), [data])
    assert isinstance(feeder.session, HermodSession)
    [request] = feeder.events
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize("value", [None, 1, "text", 'a "b" é', [1, {"a": None}], {"deep": [[[]]]}])
def test_the_broker_reads_the_request_of_a_client(value: Any) -> None:
    data, number = session().to_request("route/é", to_body(value))
    request = request_of(data)
    assert (request.route, request.handle) == ("route/é", number)
    assert request.body == to_body(value)


def test_no_body_and_bytes() -> None:
    assert request_of(session().to_request("r", Body())[0]).body == Body()
    assert request_of(session().to_request("r", to_body(b"plain"))[0]).body == Body(b"plain", Format.TEXT)
    odd = request_of(session().to_request("r", to_body(b"\xff"))[0]).body
    assert odd.format is Format.JSON and json.loads(odd.payload) == {"$base64": "/w=="}


def test_a_client_checks_its_arguments() -> None:
    with pytest.raises(UsageError, match="Body"):
        session().to_request("r", "text")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="UTF-8"):
        session().to_request("\ud800", Body())


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_responses_survive_any_cut(body: Body, step: int) -> None:
    """Between other replies, and in another order than that of the requests."""
    client = session()
    client.open()
    first, second = client.to_request("a", Body())[1], client.to_request("b", Body())[1]
    text = b'{"status": "OK", "count": 0}\n'
    data = (
        to_response(second, True, body) + text + to_response(first, False, Body(b"NotFound", Format.TEXT)) + text
    )
    for start in range(0, len(data), step):
        client.receive(data[start : start + step])
    assert client.failure is None and client.refusal is None
    assert client.responses == {
        first: Response(False, Body(b"NotFound", Format.TEXT)),
        second: Response(True, body),
    }
    assert not client.pending


def test_a_late_response_is_ignored() -> None:
    client = session()
    client.receive(
        to_response(7, True, Body(b"late", Format.TEXT)) + to_response(7, False, Body(b"late", Format.TEXT))
    )
    assert client.failure is None and client.responses == {}


@pytest.mark.parametrize(
    ("word", "code"),
    [("NotFound", 404), ("BadRequest: limit", 400), ("Busy", 503), ("NoLog: no log", 501), ("own: words", 500)],
)
def test_failures_have_codes_and_end_nothing(word: str, code: int) -> None:
    data = to_response(1, False, Body(word.encode(), Format.TEXT))
    assert json.loads(data) == {"status": "ERROR", "id": 1, "code": code, "message": word}
    client = session()
    client.to_request("a", Body())
    client.receive(data)
    assert client.refusal is None and client.responses[1] == Response(False, Body(word.encode(), Format.TEXT))


def test_an_unknown_format() -> None:
    client = session()
    client.receive(b'{"status": "OK", "id": 1, "format": "xml", "payload_size": 1}x')
    assert client.failure and "xml" in str(client.failure)
