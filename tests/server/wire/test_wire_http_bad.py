"""Bad input on the http listener: the right response, and no effect on other connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.http import get, read_all, read_response, request
from kit.room import Room
from kit.websocket import (
    BINARY,
    CONTINUATION,
    MASK,
    PING,
    TEXT,
    WebSocket,
    close_frame,
    frame,
    read_frames,
    upgrade,
)
from kit.wire import Peer

LINE_BYTES = 4096
PAYLOAD_BYTES = 100_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    limits = [f"--set=limits.line_bytes={LINE_BYTES}", f"--set=limits.payload_bytes={PAYLOAD_BYTES}"]
    with Broker(*limits) as started:
        yield started


@pytest.fixture
def witness(room: Room, broker: Broker) -> Iterator[WebSocket]:
    """A subscriber on the same listener: it receives its messages and nothing else."""
    with WebSocket(broker.ports["http"]) as socket:
        socket.send_text('{"subscribe":"witness"}')
        socket.flush()
        yield socket
        room.simplest(pub("witness", b"all is well"))
        socket.expect_text('{"publish":"witness","body":"all is well"}')


REQUESTS = {
    "noise": (b"\x00\xff\x80garbage\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "another dialect": (b"pub a 5 hello\n\n", 400),
    "a head without an end": (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000, 431),
    "a line without an end": (b"GET /" + b"x" * 2 * LINE_BYTES, 431),
    "a long head": (get("/", "X: " + "y" * LINE_BYTES), 431),
    "a huge body": (request("PUT", "/", "Content-Length: 99999999999"), 413),
    "a body in chunks": (request("PUT", "/", "Transfer-Encoding: chunked"), 405),
    "smuggling": (request("PUT", "/", "Content-Length: 1", "Content-Length: 2"), 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
}


@pytest.mark.parametrize(("sent", "status"), REQUESTS.values(), ids=REQUESTS)
def test_requests_that_are_none(room: Room, witness: WebSocket, sent: bytes, status: int) -> None:
    peer = room.connect("http")
    peer.send(sent)
    assert read_all(peer.expect_closed()) == [status]


def test_a_request_that_ends_too_early(room: Room, witness: WebSocket) -> None:
    peer = room.connect("http")
    peer.send(get("/")[:-4])
    peer.shut()
    assert read_all(peer.expect_closed()) == [400]


def test_a_good_request_before_a_bad_one(room: Room, witness: WebSocket) -> None:
    peer = room.connect("http")
    peer.send(get("/healthz") + b"nonsense\r\n\r\n")
    assert read_all(peer.expect_closed()) == [200, 400]


@pytest.mark.parametrize(
    ("sent", "status"),
    [(upgrade("/elsewhere"), 400), (upgrade(version="7"), 426), (upgrade(key=b"short"), 400)],
    ids=["elsewhere", "version", "key"],
)
def test_a_bad_upgrade_can_be_retried(room: Room, witness: WebSocket, sent: bytes, status: int) -> None:
    peer = room.connect("http")
    peer.send(sent)
    assert read_response(peer).status == status
    peer.send(get("/healthz"))
    assert read_response(peer).body == b"ok\n"


FRAMES = {
    "no mask": (frame(TEXT, b"x", mask=b""), 1002),
    "reserved bits": (frame(TEXT, b"x", reserved=0x40), 1002),
    "unknown kind": (frame(5, b"x"), 1002),
    "nothing to continue": (frame(CONTINUATION, b"x"), 1002),
    "a message in a message": (frame(TEXT, b"{", final=False) + frame(TEXT, b"}"), 1002),
    "a ping in fragments": (frame(PING, b"x", final=False), 1002),
    "a long ping": (frame(PING, b"x" * 126), 1002),
    "a close code that is none": (close_frame(1005), 1002),
    "a close code of one byte": (frame(8, b"\x03"), 1002),
    "a close reason that is no text": (close_frame(1000, b"\xff\xfe"), 1007),
    "the head of a huge frame": (b"\x82\xff" + (1 << 40).to_bytes(8, "big") + MASK, 1009),
    "too long in fragments": (
        frame(BINARY, b"x" * PAYLOAD_BYTES, final=False) + frame(CONTINUATION, b"x" * PAYLOAD_BYTES, final=False),
        1009,
    ),
    "HTTP again": (get("/healthz"), 1002),
}


@pytest.mark.parametrize(("sent", "code"), FRAMES.values(), ids=FRAMES)
def test_frames_that_are_none(broker: Broker, witness: WebSocket, sent: bytes, code: int) -> None:
    with WebSocket(broker.ports["http"]) as socket:
        socket.send(frame(PING, b"fine") + sent)
        socket.expect(b"\x8a\x04fine")
        assert socket.expect_close(code)


def test_a_flood_of_pings_gets_pongs(broker: Broker, witness: WebSocket) -> None:
    with WebSocket(broker.ports["http"]) as socket:
        count = 20_000
        socket.send(frame(PING, b"?") * count + frame(PING, b"end"))
        assert read_frames(socket.read_until(b"\x8a\x03end"))[0][:count] == [(10, b"?", True)] * count


def test_a_flood_of_requests_is_cut_short(room: Room, witness: WebSocket) -> None:
    """A peer that requests this many pages at once gets responses for some of them, then is closed."""
    peer = room.connect("http")
    peer.send(get("/metrics") * 100)
    statuses = read_all(peer.expect_closed())
    assert 0 < len(statuses) < 100
    assert set(statuses) == {200}


def test_a_head_that_drips(room: Room, witness: WebSocket) -> None:
    peer = room.connect("http")
    for byte in get("/healthz"):
        peer.send(bytes([byte]))
    assert read_response(peer).body == b"ok\n"


def test_a_silent_connection_times_out() -> None:
    with Broker("--set=limits.handshake_seconds=0.2", listen=("http",)) as broker:
        silent, slow = broker.connect("http"), broker.connect("http")
        slow.send(b"GET /healthz HTTP/1.1\r\n")
        with silent, slow, WebSocket(broker.ports["http"]) as socket:
            assert silent.expect_closed() == b""
            assert read_all(slow.expect_closed()) == [408]
            assert len(broker.wait_for_log("limits.handshake_seconds").splitlines()) >= 1
            socket.flush()


def test_errors_are_logged_and_counted(broker: Broker, room: Room) -> None:
    peer = room.connect("http")
    peer.send(b"GET /" + b"x" * 2 * LINE_BYTES)
    peer.expect_closed()
    assert "limits.line_bytes" in broker.wait_for_log("the head of a request")
    assert _closed_by_limit(room.connect("http")) >= 1


def _closed_by_limit(peer: Peer) -> int:
    peer.send(get("/metrics"))
    line = b'polycast_connections_closed_total{listener="http",dialect="http",reason="limit"} '
    [count] = [each.removeprefix(line) for each in read_response(peer).body.splitlines() if each.startswith(line)]
    return int(count)
