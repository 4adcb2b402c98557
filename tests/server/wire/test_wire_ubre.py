"""The dialect `ubre` on the wire: messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import ALL, Broker
from kit.flow import MIB
from kit.frames import pub
from kit.room import Room
from kit.ubre import STREAMING, UbrePeer, frame, line, text
from kit.websocket import CONTINUATION, TEXT, WebSocket
from kit.websocket import frame as ws_frame

BODIES = ["hello", 'é\n"\\', "", {"n": 1.5, "é": ["x y", None]}, [], 0, True, None]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(listen=(*ALL, "ubre")) as running:
        yield running


@pytest.fixture
def stream(broker: Broker) -> Iterator[UbrePeer]:
    with UbrePeer(broker.ports["ubre"]) as peer:
        yield peer


@pytest.fixture
def socket(broker: Broker) -> Iterator[WebSocket]:
    with WebSocket(broker.ports["http"]) as peer:
        yield peer


# -- between connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("body", BODIES)
def test_from_a_stream_to_a_websocket(stream: UbrePeer, socket: WebSocket, body: object) -> None:
    socket.send_text(text(subscribe="orders"))
    socket.flush()
    stream.send_message(publish="orders", body=body)
    socket.expect_text(text(publish="orders", body=body))


@pytest.mark.parametrize("body", BODIES)
def test_from_a_websocket_to_a_stream(stream: UbrePeer, socket: WebSocket, body: object) -> None:
    stream.send_message(subscribe="orders")
    stream.flush()
    socket.send_text(text(publish="orders", body=body))
    stream.expect_message(publish="orders", body=body)


def test_no_body_has_no_key(stream: UbrePeer, socket: WebSocket) -> None:
    stream.send_message(subscribe="orders")
    stream.flush()
    socket.send_text(text(publish="orders"))
    stream.expect_message(publish="orders")
    socket.send_binary(frame("P", "orders"))
    stream.expect_message(publish="orders")


def test_numbers_are_not_reformatted(stream: UbrePeer, socket: WebSocket) -> None:
    stream.send_message(subscribe="n")
    stream.flush()
    socket.send_text('{"publish": "n", "body": [ 1.50, 1e400, -0, 12345678901234567890123 ]}')
    stream.expect(b'{"publish":"n","body":[1.50,1e400,-0,12345678901234567890123]}\n')


def test_a_publisher_gets_its_own_messages(stream: UbrePeer, socket: WebSocket) -> None:
    stream.send(line(subscribe="me") + line(publish="me", body=1))
    stream.expect_message(publish="me", body=1)
    socket.send_text(text(subscribe="me"))
    socket.send_text(text(publish="me", body=2))
    socket.expect_text(text(publish="me", body=2))


def test_topics_match_exactly(stream: UbrePeer) -> None:
    for topic in ("a", "a.>", "é", "", "x y", ">"):
        stream.send_message(subscribe=topic)
    for topic in ("ab", "A", "a.b", "a.>", "é", "", "x y", "x", ">"):
        stream.send_message(publish=topic, body=topic)
    for topic in ("a.>", "é", "", "x y", ">"):
        stream.expect_message(publish=topic, body=topic)
    stream.flush()


def test_unsubscribe(stream: UbrePeer) -> None:
    stream.send(line(subscribe="a") + line(subscribe="b") + line(unsubscribe="a") + line(unsubscribe="never"))
    stream.send(line(publish="a", body=1) + line(publish="b", body=2))
    stream.expect_message(publish="b", body=2)
    stream.flush()


def test_many_messages_keep_their_order(stream: UbrePeer, socket: WebSocket) -> None:
    """Bodies that are passed on byte for byte, and those that are reformatted."""
    stream.send_message(subscribe="t")
    stream.flush()
    texts = [text(publish="t", body=i) if i % 3 else f'{{"publish": "t", "body": "{i}"}}' for i in range(3000)]
    socket.send(b"".join(ws_frame(TEXT, each.encode()) for each in texts))
    for i in range(3000):
        stream.expect_message(publish="t", body=i if i % 3 else str(i))


def test_large_bodies(stream: UbrePeer, socket: WebSocket) -> None:
    socket.send_text(text(subscribe="large"))
    socket.flush()
    for body in ("x" * (3 * MIB), ["é" * MIB]):
        stream.send_message(publish="large", body=body)
        socket.expect_text(text(publish="large", body=body))
    stream.send(frame("P", "large", b"y" * MIB))
    socket.expect_text(text(publish="large", body="y" * MIB))


def test_fragments(socket: WebSocket) -> None:
    socket.send_text(text(subscribe="a"))
    head, tail = text(publish="a", body="é").encode()[:25], text(publish="a", body="é").encode()[25:]
    socket.send(ws_frame(TEXT, head, final=False) + ws_frame(CONTINUATION, tail))
    socket.expect_text(text(publish="a", body="é"))


# -- JSON and binary -------------------------------------------------------------------------------------


def test_a_subscription_is_served_in_the_form_it_was_made_in(stream: UbrePeer, socket: WebSocket) -> None:
    stream.send(frame("S", "in/binary") + line(subscribe="in/json"))
    stream.flush()
    socket.send_binary(frame("P", "in/binary", b"\xff{"))
    socket.send_binary(frame("P", "in/json", b"\xff{"))
    socket.send_text(text(publish="in/binary", body={"a": [1]}))
    socket.send_text(text(publish="in/binary", body="é"))
    socket.send_text(text(publish="in/binary"))
    stream.expect(frame("P", "in/binary", b"\xff{"))
    stream.expect_message(publish="in/json", body={"$base64": "/3s="})
    stream.expect(frame("P", "in/binary", b'{"a":[1]}') + frame("P", "in/binary", "é".encode()))
    stream.expect(frame("P", "in/binary"))


def test_the_later_encoding_wins_and_there_is_one_delivery(socket: WebSocket) -> None:
    socket.send_text(text(subscribe="a"))
    socket.send_binary(frame("S", "a"))
    socket.send_text(text(publish="a", body=1))
    socket.expect_binary(frame("P", "a", b"1"))
    socket.send_text(text(subscribe="a"))
    socket.send_text(text(publish="a", body=2))
    socket.expect_text(text(publish="a", body=2))
    socket.send_binary(frame("U", "a"))
    socket.send_text(text(publish="a", body=3))
    socket.flush()


def test_a_streamed_body_ends_with_its_message_or_its_stream(broker: Broker, stream: UbrePeer) -> None:
    stream.send_message(subscribe="s")
    stream.flush()
    with WebSocket(broker.ports["http"]) as one, UbrePeer(broker.ports["ubre"]) as two:
        one.send_binary(frame("P", "s", b"whole", STREAMING))
        stream.expect_message(publish="s", body="whole")
        two.send(frame("P", "s", b"begun, ", STREAMING))
        two.send(b"x" * MIB)
        two.send(b" and ended")
        two.shut()
        stream.expect_message(publish="s", body="begun, " + "x" * MIB + " and ended")


def test_a_last_line_without_its_end(broker: Broker, stream: UbrePeer) -> None:
    stream.send_message(subscribe="last")
    stream.flush()
    with UbrePeer(broker.ports["ubre"]) as peer:
        peer.send(line(publish="last", body=1) + line(publish="last", body=2)[:-1])
        peer.shut()
        stream.expect_message(publish="last", body=1)
        stream.expect_message(publish="last", body=2)


# -- other dialects --------------------------------------------------------------------------------------


def test_from_other_dialects(room: Room, stream: UbrePeer, socket: WebSocket) -> None:
    stream.send(line(subscribe="news") + frame("S", "raw"))
    stream.flush()
    room.simplest(pub("news", b"hi") + pub("news", b"\xff\x00") + pub("news") + pub("raw", b"\xff") + pub("raw"))
    stream.expect_message(publish="news", body="hi")
    stream.expect_message(publish="news", body={"$base64": "/wA="})
    stream.expect_message(publish="news", body="")
    stream.expect(frame("P", "raw", b"\xff") + frame("P", "raw"))
    socket.send_text(text(subscribe="all"))
    socket.flush()
    room.send_as_controller(room.controller(), 'all {"not": "é"}\n'.encode())
    socket.expect_text(text(publish="all", body='{"not": "é"}'))


def test_to_other_dialects(room: Room, socket: WebSocket) -> None:
    simplest = room.simplest(b"sub t/\n")
    fanout = room.client(b"unsubscribe all\nsubscribe t/\n")
    for message in (
        '{"publish": "t/", "body": "é\\n"}',
        '{"publish": "t/", "body": {"a": 1}}',
        '{"publish":"t/"}',
    ):
        socket.send_text(message)
    simplest.expect(pub("t/", "é\n".encode()) + pub("t/", b'{"a":1}') + pub("t/"))
    fanout.expect('t/!é\\n\nt/!{"a":1}\nt/!\n'.encode())


def test_published_topics_can_be_declared(broker: Broker) -> None:
    with WebSocket(broker.ports["http"], "/ubre?publishes=orders,a%20b,%C3%A9") as socket:
        for topic in ("orders", "a b", "é"):
            socket.expect_text(text(subscribe=topic))
        socket.flush()


# -- bad input -------------------------------------------------------------------------------------------


def test_the_tenth_message_that_cannot_be_read_closes(broker: Broker, socket: WebSocket) -> None:
    with WebSocket(broker.ports["http"]) as bad, UbrePeer(broker.ports["ubre"]) as worse:
        for message in ("{", '{"publish":5}', "hello") * 3:
            bad.send_text(message)
        bad.flush()
        bad.send_text("{")
        assert "10 messages" in bad.expect_close(1007)
        worse.send(b"{\n" * 9)
        worse.flush()
        worse.send(b"{\n")
        assert worse.expect_closed() == b""
    socket.flush()


@pytest.mark.parametrize(
    "message", [frame("c", "a"), b"hello\n", frame("P", "n" * 1025), b"P\0\1\xff\xff\xff\xfea"]
)
def test_binary_that_cannot_be_read_closes_a_stream(broker: Broker, stream: UbrePeer, message: bytes) -> None:
    stream.send_message(subscribe="before")
    stream.flush()
    with UbrePeer(broker.ports["ubre"]) as bad:
        bad.send(line(publish="before", body=1) + message + line(publish="before", body=2))
        assert bad.expect_closed() == b""
    stream.expect_message(publish="before", body=1)
    stream.flush()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (frame("c", "a"), 1002),
        (frame("P", "a", b"x", 2), 1002),
        (frame("P", "a", b"xx", 1), 1002),
        (frame("P", "n" * 1025), 1009),
    ],
)
def test_binary_that_cannot_be_read_closes_a_websocket(broker: Broker, message: bytes, code: int) -> None:
    with WebSocket(broker.ports["http"]) as bad:
        bad.send_binary(message)
        bad.expect_close(code)


def test_limits() -> None:
    limits = ("--set=limits.payload_bytes=1000", "--set=limits.line_bytes=400", "--set=limits.topic_bytes=10")
    with Broker(*limits, listen=("http", "ubre")) as broker:
        for message in (text(publish="a", body="x" * 1001), text(publish="n" * 11), "x" * 1734):
            with WebSocket(broker.ports["http"]) as bad:
                bad.send_text(message)
                assert "limits." in bad.expect_close(1009)
            with UbrePeer(broker.ports["ubre"]) as worse:
                worse.send(b"{" + message.encode()[1:] + b"\n")
                assert worse.expect_closed() == b""
        with WebSocket(broker.ports["http"]) as good:
            good.send_text(text(subscribe="n" * 10))
            good.send_text(text(publish="n" * 10, body="x" * 1000))
            good.expect_text(text(publish="n" * 10, body="x" * 1000))


def test_deep_nesting_is_cheap(socket: WebSocket, stream: UbrePeer) -> None:
    socket.send_text('{"publish":"a","body":' + "[" * MIB)
    stream.send(b'{"publish":"a","body":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    socket.flush()
    stream.flush()


def test_a_stopping_broker_closes_its_connections() -> None:
    with (
        Broker(listen=("http", "ubre")) as broker,
        WebSocket(broker.ports["http"]) as socket,
        UbrePeer(broker.ports["ubre"]) as stream,
    ):
        socket.flush()
        stream.flush()
        broker.stop()
        socket.expect_close(1001)
        assert stream.expect_closed() == b""


# -- tunnels ---------------------------------------------------------------------------------------------


def test_a_tunnel(broker: Broker, socket: WebSocket) -> None:
    """UBRE within UBRE: requests and responses inside messages."""
    with WebSocket(broker.ports["http"]) as far:
        far.send_text(text(subscribe="tunnel/there"))
        socket.send_text(text(subscribe="tunnel/back"))
        far.flush()
        socket.flush()
        request = {"request": "add", "id": 7, "body": [2, 3]}
        socket.send_text(text(publish="tunnel/there", body=request))
        far.expect_text(text(publish="tunnel/there", body=request))
        success = {"success": 7, "body": 5}
        far.send_text(text(publish="tunnel/back", body=success))
        socket.expect_text(text(publish="tunnel/back", body=success))


def test_a_tunnel_in_a_tunnel(socket: WebSocket) -> None:
    inner = {"publish": "inner", "body": {"subscribe": "x", "body": {"unsubscribe": "outer"}}}
    for topic in ("outer", "inner", "x"):
        socket.send_text(text(subscribe=topic))
    socket.send_text(text(publish="outer", body=inner))
    socket.expect_text(text(publish="outer", body=inner))
    socket.send_binary(frame("P", "outer", frame("P", "inner", frame("S", "x"))))
    socket.expect_text(text(publish="outer", body="P\0\5\0\0\0\x08innerS\0\1\0\0\0\0x"))
    socket.flush()
