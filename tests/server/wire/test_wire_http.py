"""The http listener, as browsers, scrapers and WebSocket clients see it on the wire."""

from __future__ import annotations

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.http import Response, get, read_all, read_response, request
from kit.room import Room
from kit.websocket import BINARY, CLOSE, PING, PONG, TEXT, WebSocket, close_frame, frame, upgrade, welcome


def fetch(room: Room, path: str) -> Response:
    peer = room.connect("http")
    peer.send(get(path))
    return read_response(peer)


# -- pages -----------------------------------------------------------------------------------------------


def test_a_sign_of_life(room: Room) -> None:
    response = fetch(room, "/healthz")
    assert (response.status, response.body) == (200, b"ok\n")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


def test_no_such_page(room: Room) -> None:
    assert fetch(room, "/nowhere").status == 404
    assert fetch(room, "/healthz/").status == 404


def test_head(room: Room) -> None:
    peer = room.connect("http")
    peer.send(request("HEAD", "/") + get("/healthz"))
    assert int(read_response(peer, body=False).headers["content-length"]) > 1000
    assert read_response(peer).body == b"ok\n"


def test_a_connection_stays_open_until_the_client_closes(room: Room) -> None:
    peer = room.connect("http")
    for _ in range(3):
        peer.send(get("/healthz"))
        assert "connection" not in read_response(peer).headers
    peer.send(get("/healthz", "Connection: close"))
    assert read_response(peer).headers["connection"] == "close"
    assert peer.expect_closed() == b""


def test_http_1_0(room: Room) -> None:
    peer = room.connect("http")
    peer.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert read_all(peer.expect_closed()) == [200]


def test_a_half_closed_client_gets_its_response(room: Room) -> None:
    """Like netcat."""
    peer = room.connect("http")
    peer.send(get("/healthz"))
    peer.shut()
    assert peer.expect_closed().endswith(b"\r\n\r\nok\n")


def test_a_body_is_dropped_or_the_connection_closes(room: Room) -> None:
    """A client that sends all of a long body first can still read the response."""
    peer = room.connect("http")
    peer.send(request("POST", "/", "Content-Length: 60000", body=b"x" * 60_000) + get("/healthz"))
    assert [read_response(peer).status for _ in range(2)] == [405, 200]
    peer.send(request("POST", "/", "Content-Length: 3000000", body=b"x" * 3_000_000) + get("/healthz"))
    assert read_response(peer).headers["connection"] == "close"
    assert peer.socket.recv(1) == b""


# -- WebSockets ------------------------------------------------------------------------------------------


def test_a_websocket_becomes_another_dialect(room: Room, broker: Broker) -> None:
    with WebSocket(broker.ports["http"], "/ubre", "ubre") as socket:
        socket.send_text('{"subscribe":"ws.one"}')
        socket.flush()
        room.simplest(pub("ws.one", b"hello"))
        socket.expect_text('{"publish":"ws.one","body":"hello"}')
    assert b'{listener="http",dialect="ubre"}' in fetch(room, "/metrics").body


def test_the_door_of_nanomsg(room: Room, broker: Broker) -> None:
    with WebSocket(broker.ports["http"], "/any", "chat, pub.sp.nanomsg.org", "pub.sp.nanomsg.org") as socket:
        socket.flush()
        room.simplest(pub("ws.two", b"\x00"))
        socket.expect_binary(b"ws.two|\x00")


def test_everything_at_once(room: Room, broker: Broker) -> None:
    """A page, the upgrade and the first frames in one write."""
    peer = room.connect("http")
    subscribe = frame(TEXT, b'{"subscribe":"ws.three"}')
    peer.send(get("/healthz") + upgrade() + subscribe + frame(PING, b"done"))
    assert read_response(peer).body == b"ok\n"
    peer.expect(welcome() + b"\x8a\x04done")
    room.simplest(pub("ws.three", b"x"))
    peer.expect(frame(TEXT, b'{"publish":"ws.three","body":"x"}', mask=b""))


@pytest.mark.parametrize("size", [125, 126, 65_535, 65_536, 1_000_000])
def test_frames_of_every_length(room: Room, broker: Broker, size: int) -> None:
    subscriber = room.simplest(b"sub ws.size\n")
    with WebSocket(broker.ports["http"], "/", "sub.sp.nanomsg.org") as socket:
        body = b"ws.size|".ljust(size, b"\x9a")
        socket.send_binary(body)
        subscriber.expect(pub("ws.size", body[8:]))
        halves = frame(BINARY, body[: size // 2], final=False) + frame(PING) + frame(0, body[size // 2 :])
        socket.send(halves)
        socket.expect_frame(PONG, b"")
        subscriber.expect(pub("ws.size", body[8:]))


def test_a_close_frame_gets_a_close_frame(broker: Broker) -> None:
    with WebSocket(broker.ports["http"]) as socket:
        socket.send(close_frame(4321, b"enough"))
        socket.expect_frame(CLOSE, (4321).to_bytes(2, "big"))
        assert socket.expect_closed() == b""


def test_a_stopping_broker_sends_close() -> None:
    with Broker(listen=("http",)) as broker, WebSocket(broker.ports["http"]) as socket:
        begun = broker.connect("http")
        idle = broker.connect("http")
        begun.send(b"GET / HT")
        idle.send(get("/healthz"))
        read_response(idle)
        broker.stop()
        assert socket.expect_close(1001) == "the broker stops"
        assert read_all(begun.expect_closed()) == [503]
        assert idle.expect_closed() == b""
        begun.close()
        idle.close()
