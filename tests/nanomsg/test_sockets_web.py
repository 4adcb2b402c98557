"""Sockets over WebSocket: handshake, frames, and invalid peers."""

from __future__ import annotations

import pytest

from kit.nanomsg import Listening
from kit.websocket import BINARY, CLOSE, CONTINUATION, KEY, PING, PONG, TEXT, WebSocket, frame, upgrade, welcome
from kit.wire import GUARD_SECONDS, Peer
from nanomsg.socket_pairs import port_of, take
from polycast.nanomsg import PUB, SUB, Socket

PUBLISHER, SUBSCRIBER = "pub.sp.nanomsg.org", "sub.sp.nanomsg.org"
"""The sub-protocols, which name the listener's kind."""
PLACE = "ws://127.0.0.1:0"


@pytest.mark.parametrize("path", ["/", "/any/path?and=more", ""])
def test_a_publisher(path: str) -> None:
    """nng sends an empty path if its address has none."""
    with Socket(PUB) as pub, WebSocket(port_of(pub.bind(f"{PLACE}/x")), path, PUBLISHER) as peer:
        pub.wait_for_peers(1, GUARD_SECONDS)
        pub.send(b"foo|Hello!")
        pub.send(b"y" * 200)
        peer.expect(b"\x82\x0afoo|Hello!" + b"\x82\x7e\x00\xc8" + b"y" * 200)


def test_a_subscriber() -> None:
    with Socket(SUB) as sub, Peer(port_of(sub.bind(PLACE))) as peer:
        sub.subscribe(b"")
        peer.send(upgrade("/", SUBSCRIBER) + frame(BINARY, b"foo|Hello!") + frame(BINARY))
        peer.expect(welcome(SUBSCRIBER))
        assert take(sub, 2) == [b"foo|Hello!", b""]


def test_one_of_several_sub_protocols() -> None:
    offer = f"other, {PUBLISHER}, {SUBSCRIBER}"
    with Socket(SUB) as sub, WebSocket(port_of(sub.bind(PLACE)), "/", offer, SUBSCRIBER) as peer:
        sub.subscribe(b"")
        peer.send_binary(b"x")
        assert sub.recv(GUARD_SECONDS) == b"x"


def test_fragments_and_pings() -> None:
    with Socket(SUB) as sub, WebSocket(port_of(sub.bind(PLACE)), "/", SUBSCRIBER) as peer:
        sub.subscribe(b"")
        peer.send(frame(BINARY, b"one ", final=False) + frame(PING, b"?") + frame(CONTINUATION, b"message"))
        peer.expect_frame(PONG, b"?")
        assert sub.recv(GUARD_SECONDS) == b"one message"


@pytest.mark.parametrize("protocol", ["", SUBSCRIBER, "ubre", "rep.sp.nanomsg.org"])
def test_another_sub_protocol_is_refused(protocol: str) -> None:
    with Socket(PUB) as pub, Peer(port_of(pub.bind(PLACE))) as peer:
        peer.send(upgrade("/ubre", protocol))
        response = peer.expect_closed()
        assert response.startswith(b"HTTP/1.1 400 ")
        assert PUBLISHER.encode() in response
        assert pub.peers == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"\0SP\0\0\x21\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        upgrade("/", PUBLISHER, version="12"),
        upgrade("/", PUBLISHER, key=KEY[:9]),
        b"GET /" + b"x" * 100_000,
    ],
    ids=["not http", "no upgrade", "version", "key", "too long"],
)
def test_a_request_that_is_no_upgrade(sent: bytes) -> None:
    with Socket(PUB) as pub, Peer(port_of(pub.bind(PLACE))) as peer:
        peer.send(sent)
        assert not peer.expect_closed().startswith(b"HTTP/1.1 1")
        assert pub.peers == 0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"text"), 1003),
        (frame(BINARY, b"x" * 1001)[:8], 1009),
        (frame(BINARY, b"x", mask=b""), 1002),
        (frame(3), 1002),
    ],
    ids=["text", "too large", "no mask", "unknown kind"],
)
def test_a_bad_publisher_gets_the_reason(sent: bytes, code: int) -> None:
    sub = Socket(SUB, message_bytes=1000)
    with sub, WebSocket(port_of(sub.bind(PLACE)), "/", SUBSCRIBER) as peer:
        sub.subscribe(b"")
        peer.send_binary(b"good")
        assert sub.recv(GUARD_SECONDS) == b"good"
        peer.send(sent)
        peer.expect_close(code)


def test_a_message_that_is_too_large_names_the_argument(caplog: pytest.LogCaptureFixture) -> None:
    sub = Socket(SUB, message_bytes=1000)
    with sub, WebSocket(port_of(sub.bind(PLACE)), "/", SUBSCRIBER) as peer:
        peer.send(frame(BINARY, b"x" * 1001)[:8])
        peer.expect_close(1009)
    assert "raise the socket's message_bytes" in caplog.text


def test_a_subscriber_that_speaks_loses_its_pipe() -> None:
    with Socket(PUB) as pub, WebSocket(port_of(pub.bind(PLACE)), "/", PUBLISHER) as peer:
        pub.wait_for_peers(1, GUARD_SECONDS)
        peer.send_binary(b"I have something to say")
        assert peer.read_frame().opcode == CLOSE
        peer.expect_closed()


@pytest.mark.parametrize(("kind", "protocol"), [(PUB, SUBSCRIBER), (SUB, PUBLISHER)])
def test_a_dialler_offers_the_listeners_sub_protocol(kind: int, protocol: str) -> None:
    with Listening(f"{PLACE}/some/path") as listener, Socket(PUB if kind == PUB else SUB) as sock:
        sock.connect(listener.address)
        with listener.accept_websocket(protocol):
            sock.wait_for_peers(1, GUARD_SECONDS)


def test_frames_of_a_dialler_are_masked() -> None:
    with Socket(PUB) as pub, Socket(SUB) as sub:
        sub.subscribe(b"")
        pub.connect(sub.bind(f"{PLACE}/"))
        pub.wait_for_peers(1, GUARD_SECONDS)
        pub.send(b"x" * 100_000)
        assert sub.recv(GUARD_SECONDS) == b"x" * 100_000  # the server closes the pipe after a frame without a mask


def test_a_listener_that_agrees_to_something_else() -> None:
    with Listening(PLACE) as listener, Socket(SUB) as sub:
        sub.connect(listener.address)
        with listener.accept_websocket(PUBLISHER, agreed=SUBSCRIBER) as peer:
            assert peer.expect_closed() == b""
        with listener.accept_websocket(PUBLISHER):
            sub.wait_for_peers(1, GUARD_SECONDS)
