"""A web page that posts to a listener of another dialect: no part of its request is a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from access.gate import EVERY, counted, gated
from kit import hermod, nanomsg, ubre
from kit.broker import Broker
from kit.frames import pub
from kit.http import request
from kit.room import GREETING
from kit.wire import Peer

LINES = ("simplest", "simplest.peer", "fanout.client", "fanout.controller", "ubre")
"""Listeners of line-based dialects: if the request line were ignored, its body would be read as messages."""
PLAIN = tuple(name for name in (*EVERY, "simplest.peer") if name != "http")

STOLEN = {
    "simplest": pub("stolen", b"x") + b"sub \n",
    "simplest.peer": pub("stolen", b"x") + b"sub \n",
    "fanout.client": b"subscribe >\n",
    "fanout.controller": b"stolen x\n",
    "ubre": ubre.line(publish="stolen", body="x") + ubre.line(subscribe="fence"),
    "hermod.pub": hermod.message("stolen", b"x"),
    "hermod.sub": hermod.topics("fence"),
    "nanomsg.pub": nanomsg.SUB,
    "nanomsg.sub": nanomsg.PUB + nanomsg.message(b"stolen|x"),
}
"""The effect of the request body, if it were read."""

REQUESTS = {
    "form": ("POST", "/", "1.1"),
    "fetch": ("PUT", "/a%20b?c=d", "1.1"),
    "get": ("GET", "/favicon.ico", "1.1"),
    "no path": ("GET", "", "1.1"),
    "old": ("POST", "/", "1.0"),
    "absolute": ("GET", "http://evil.example/", "1.1"),
    "connect": ("CONNECT", "127.0.0.1:9014", "1.1"),
    "HTTP/2": ("PRI", "*", "2.0"),
    "a method that is a command of simplest": ("pub", "/x", "1.1"),
    "a subscription to simplest": ("sub", "/x", "1.1"),
    "a subscription to fanout": ("subscribe", "/x", "1.1"),
    "a kind of UBRE": ("P", "/", "1.1"),
    "lower case": ("get", "/", "1.1"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("lines")
    with gated(folder, "guest may everything", listen=(*EVERY, "simplest.peer")) as started:
        yield started


@pytest.fixture
def witness(broker: Broker) -> Iterator[Peer]:
    """A subscriber to everything; receives only its own last message."""
    with broker.connect("fanout.client") as peer, broker.connect("fanout.controller") as publisher:
        peer.expect(GREETING)
        peer.send(b"subscribe >\ntime\n")
        peer.read_until(b"\n")
        yield peer
        publisher.send(b"fence all is well\n")
        peer.expect(b"fence!all is well\n")


def attack(broker: Broker, listener: str, data: bytes, piece: int = 1 << 20) -> bytes:
    """Send until the broker closes; returns what the broker sent before."""
    with broker.connect(listener) as peer:
        with suppress(ConnectionError):
            for begin in range(0, len(data), piece):
                peer.send(data[begin : begin + piece])
        return peer.expect_closed()


def posted(listener: str, method: str = "POST", target: str = "/", version: str = "1.1") -> bytes:
    body = STOLEN[listener]
    headers = ("Origin: http://evil.example", f"Content-Length: {len(body)}", "Content-Type: text/plain")
    return request(method, target, *headers, body=body, version=version)


@pytest.mark.parametrize("listener", PLAIN)
@pytest.mark.parametrize("piece", [1 << 20, 1], ids=["whole", "byte by byte"])
def test_a_request_publishes_nothing(listener: str, piece: int, broker: Broker, witness: Peer) -> None:
    text = attack(broker, listener, posted(listener), piece)
    assert b"fence" not in text and b"stolen" not in text


@pytest.mark.parametrize("listener", LINES)
@pytest.mark.parametrize("kind", REQUESTS)
def test_any_request(listener: str, kind: str, broker: Broker, witness: Peer) -> None:
    attack(broker, listener, posted(listener, *REQUESTS[kind]))


@pytest.mark.parametrize("listener", LINES)
def test_lines_that_end_in_lf_alone(listener: str, broker: Broker, witness: Peer) -> None:
    attack(broker, listener, posted(listener).replace(b"\r\n", b"\n"))


@pytest.mark.parametrize("listener", LINES)
@pytest.mark.parametrize("size", [2_000, 65_535, 65_536, 65_537, 65_538, 200_000])
def test_a_long_line(listener: str, size: int, broker: Broker, witness: Peer) -> None:
    """The longest line that is accepted has 65,536 bytes, and CR LF behind them."""
    target = "/".ljust(size - len("POST  HTTP/1.1"), "x")
    attack(broker, listener, posted(listener, target=target))


@pytest.mark.parametrize("listener", PLAIN)
@pytest.mark.parametrize("piece", [1 << 20, 1], ids=["whole", "byte by byte"])
def test_a_tls_client_hello_publishes_nothing(listener: str, piece: int, broker: Broker, witness: Peer) -> None:
    """A server can make browsers send bytes of its choice in the ClientHello to another address."""
    attack(broker, listener, b"\x16\x03\x01\x02\x00\x01\x00\n" + STOLEN[listener], piece)


@pytest.mark.parametrize("listener", LINES)
def test_it_is_counted_and_the_log_names_the_http_listener(listener: str, broker: Broker) -> None:
    def closed(reason: str) -> float:
        return counted(broker, "polycast_connections_closed_total", listener=listener, reason=reason)

    before, hellos = closed("http"), closed("tls")
    attack(broker, listener, request("POST", f"/{listener}/named"))
    attack(broker, listener, b"\x16\x03\x01\x02\x00\x01\x00")
    assert (closed("http"), closed("tls")) == (before + 1, hellos + 1)
    line = broker.wait_for_log(f"POST /{listener}/named HTTP/1.1")
    assert f"tcp://127.0.0.1:{broker.ports['http']}" in line


@pytest.mark.parametrize(
    ("listener", "first", "later", "received"),
    [
        ("simplest", pub("GET", b"/ HTTP/1.1"), b"GET / HTTP/1.1\n" + pub("b", b"y"), b"GET!/ HTTP/1.1\nb!y\n"),
        ("fanout.controller", b"a x\n", b"GET / HTTP/1.1\n", b"a!x\nGET!/ HTTP/1.1\n"),
        (
            "fanout.controller",
            b"a HTTP/1.1\n",
            b"b see HTTP/1.1 for that\n",
            b"a!HTTP/1.1\nb!see HTTP/1.1 for that\n",
        ),
        ("fanout.controller", b"\xc3\xa9 / HTTP/1.1\n", b"b y\n", b"\xc3\xa9!/ HTTP/1.1\nb!y\n"),
    ],
)
def test_only_the_first_line_is_checked(
    listener: str, first: bytes, later: bytes, received: bytes, broker: Broker, witness: Peer
) -> None:
    with broker.connect(listener) as peer:
        peer.send(first + later)
        witness.expect(received)
