"""The WebSocket handshake of a client."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from dialects.feed import one_by_one
from polycast.dialects.web.handshake import ClientHandshake, accept_key
from polycast.dialects.web.websocket import to_masked_frame
from polycast.errors import ProtocolError


def response_to(request: bytes, status: str = "101 Yes", protocol: str = "", accept: str = "") -> bytes:
    found = re.search(rb"Sec-WebSocket-Key: (\S+)\r\n", request)
    assert found and len(base64.b64decode(found[1])) == 16
    digest = hashlib.sha1(found[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    taken = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
    return (
        f"HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept or base64.b64encode(digest).decode()}\r\n{taken}\r\n"
    ).encode()


def test_the_key_of_the_rfc() -> None:
    assert accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_the_request_of_a_client() -> None:
    request = ClientHandshake("somewhere:80", "/a?b=c", "pub.sp.nanomsg.org").request
    line, *headers = request.decode().split("\r\n")
    assert line == "GET /a?b=c HTTP/1.1"
    assert headers[-2:] == ["", ""]
    names = {header.split(": ")[0] for header in headers[:-2]}
    assert {"Host: somewhere:80", "Upgrade: websocket", "Connection: Upgrade"} <= set(headers)
    assert {"Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: pub.sp.nanomsg.org"} <= set(headers)
    assert "Sec-WebSocket-Extensions" not in names


def test_every_request_has_a_key_of_its_own() -> None:
    assert ClientHandshake("a", "/").request != ClientHandshake("a", "/").request
    assert to_masked_frame(1, b"same") != to_masked_frame(1, b"same")


def test_a_welcome_with_frames_behind_it() -> None:
    handshake = ClientHandshake("a", "", "p")
    response = response_to(handshake.request, protocol="p")
    assert handshake.read(response + b"\x82\x00") == len(response)


def test_a_welcome_byte_by_byte() -> None:
    handshake = ClientHandshake("a", "/")
    response = response_to(handshake.request)
    there = b""
    for byte in one_by_one(response[:-1]):
        there += byte
        assert handshake.read(there) == 0
    assert handshake.read(response) == len(response)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "404 Not Found"}, "404"),
        ({"status": "200 OK"}, "200"),
        ({"status": "421 Misdirected Request"}, "add 'a' to access.hosts"),
        ({"accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, "another request"),
        ({"protocol": ""}, "sub-protocol 'p'"),
        ({"protocol": "q"}, "sub-protocol 'p'"),
    ],
)
def test_a_no(changes: dict[str, str], reason: str) -> None:
    handshake = ClientHandshake("a", "/", "p")
    with pytest.raises(ProtocolError, match=reason):
        handshake.read(response_to(handshake.request, **{"protocol": "p", **changes}))


@pytest.mark.parametrize("response", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 one\r\n\r\n", b"\x16\x03\r\n\r\n"])
def test_no_http(response: bytes) -> None:
    with pytest.raises(ProtocolError, match="not HTTP"):
        ClientHandshake("a", "/").read(response)


def test_a_response_without_an_end() -> None:
    with pytest.raises(ProtocolError, match="16,384"):
        ClientHandshake("a", "/").read(b"x" * 16_385)
