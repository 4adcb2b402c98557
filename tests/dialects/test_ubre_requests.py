"""UBRE's sessions encode requests as the route was offered, and responses as the request was sent."""

from __future__ import annotations

from typing import Any

import pytest

from kit import ubre
from kit.websocket import BINARY, TEXT, frame
from polycast.dialects.session import RequestSession, SessionContext
from polycast.dialects.ubre.session import UbreSession, UbreWebSocketSession
from polycast.model import Body, Format, Request

Row = tuple[Body, bytes, bytes]

BODIES: list[Row] = [
    (Body(), b"", b""),
    (Body(b"hi", Format.TEXT), b',"body":"hi"', b'"hi"'),
    (Body(b"[1,2]", Format.JSON), b',"body":[1,2]', b"[1,2]"),
    (Body(b"\xff", Format.BYTES), b',"body":{"$base64":"/w=="}', b"\xff"),
    (Body(b"hi", Format.BYTES), b',"body":"hi"', b"hi"),
    (Body(b"", Format.BYTES), b',"body":""', b""),
]
each_body = pytest.mark.parametrize(("body", "member", "alone"), BODIES)


def handle_of(session: RequestSession, sent: bytes) -> Any:
    [request] = session.receive(sent, 0.0).events
    assert isinstance(request, Request)
    return request.handle


@each_body
def test_a_request_in_json(body: Body, member: bytes, alone: bytes) -> None:
    message = b'{"request":"add \\"","id":12%b}' % member
    assert UbreSession(SessionContext()).to_request(12, 'add "', body) == message + b"\n"
    assert UbreWebSocketSession(SessionContext()).to_request(12, 'add "', body) == frame(TEXT, message, mask=b"")


@each_body
def test_a_request_in_binary(body: Body, member: bytes, alone: bytes) -> None:
    offer = ubre.frame("S", 'add "', b'{"serve":true}')
    message = ubre.frame("R", "12", b'{"route":"add \\""%b}' % member)
    stream, socket = UbreSession(SessionContext()), UbreWebSocketSession(SessionContext())
    stream.receive(offer, 0.0)
    socket.receive(frame(BINARY, offer), 0.0)
    assert stream.to_request(12, 'add "', body) == message
    assert socket.to_request(12, 'add "', body) == frame(BINARY, message, mask=b"")


def test_the_last_offer_determines_the_encoding() -> None:
    session = UbreSession(SessionContext())
    json_offer, binary_offer = (
        ubre.line(subscribe="a", body={"serve": True}),
        ubre.frame("S", "a", b'{"serve":true}'),
    )
    in_json, in_binary = ubre.line(request="a", id=1), ubre.frame("R", "1", b'{"route":"a"}')
    for offer, expected in [
        (json_offer, in_json),
        (binary_offer, in_binary),
        (ubre.line(subscribe="a"), in_binary),
        (ubre.frame("S", "b", b'{"serve":true}'), in_binary),
        (json_offer, in_json),
        (ubre.frame("S", "a"), in_json),
        (binary_offer + ubre.line(unsubscribe="a"), in_json),
        (binary_offer + ubre.frame("U", "a"), in_json),
    ]:
        session.receive(offer, 0.0)
        assert session.to_request(1, "a", Body()) == expected


@each_body
@pytest.mark.parametrize("id_", [b"7", b'"7"', b"7.0", b"null", b'{"a": [1, 2]}', b'"\\u0041"', '"é"'.encode()])
def test_a_response_in_json(id_: bytes, body: Body, member: bytes, alone: bytes) -> None:
    session = UbreWebSocketSession(SessionContext())
    by_route = handle_of(session, frame(TEXT, b'{"request":"a","id":%b}' % id_))
    by_id = handle_of(session, frame(TEXT, b'{"request":%b,"body":{"route":"a"}}' % id_))
    for handle in (by_route, by_id):
        success, fail = b'{"success":%b%b}' % (id_, member), b'{"fail":%b%b}' % (id_, member)
        assert session.to_response(handle, True, body) == frame(TEXT, success, mask=b"")
        assert session.to_response(handle, False, body) == frame(TEXT, fail, mask=b"")


@each_body
@pytest.mark.parametrize("id_", [b"7", b"", b"\xff\x00", b"{"])
def test_a_response_in_binary(id_: bytes, body: Body, member: bytes, alone: bytes) -> None:
    session = UbreSession(SessionContext())
    handle = handle_of(session, ubre.frame("R", id_, b'{"route":"a"}'))
    assert session.to_response(handle, True, body) == ubre.frame("s", id_, alone)
    assert session.to_response(handle, False, body) == ubre.frame("f", id_, alone)
