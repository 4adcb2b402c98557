"""Refusals in every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from access.gate import BASE, SILENT, counted, gated
from kit.broker import Broker
from kit.hermod import OK, message
from kit.http import get, read_response
from kit.nanomsg import PUB, SUB
from kit.room import GREETING
from kit.ubre import line
from kit.websocket import CLOSE, TEXT, WebSocket, frame, read_frames, upgrade
from kit.wire import Peer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with gated(tmp_path_factory.mktemp("gate"), *BASE) as started:
        yield started


@pytest.fixture
def witness(broker: Broker) -> Iterator[Peer]:
    """A local subscriber to everything."""
    with broker.connect_file("simplest") as peer:
        peer.send(b"sub \nsub polycast/witness\npub polycast/witness 1 x\n")
        with broker.connect_file("simplest") as other:
            _until(other, peer)
        yield peer


def _until(other: Peer, peer: Peer) -> None:
    """The peer never receives its own messages."""
    other.send(b"pub polycast/witness 1 y\n")
    peer.read_until(b"pub polycast/witness 1 y\n")


def is_forbidden(peer: Peer) -> bool:
    text = json.loads(peer.read_until(b"\n"))
    return (text["status"], text["code"], text["message"]) == ("ERROR", 403, "Forbidden")


WORDS: dict[str, tuple[str, bytes, bytes]] = {
    "simplest": ("simplest", b"pub open.a 2 ok\n", b"pub secret 2 no\npub open.b 2 no\n"),
    "fanout": ("fanout.controller", b"open.a ok\n", b"secret no\nopen.b no\n"),
    "ubre": (
        "ubre",
        line(publish="open.a", body="ok"),
        line(publish="secret", body="no") + line(publish="open.b"),
    ),
    "nanomsg": (
        "nanomsg.sub",
        PUB + (9).to_bytes(8, "big") + b"open.a|ok",
        (9).to_bytes(8, "big") + b"secret|no" + (9).to_bytes(8, "big") + b"open.b|no",
    ),
}


@pytest.mark.parametrize("dialect", WORDS)
def test_a_dialect_without_errors_closes_the_connection(dialect: str, broker: Broker, witness: Peer) -> None:
    listener, allowed, forbidden = WORDS[dialect]
    before = counted(broker, "polycast_connections_closed_total", listener=listener, reason="forbidden")
    with broker.connect(listener) as peer:
        peer.send(allowed + forbidden)
        peer.expect_closed()
    witness.expect(b"pub open.a 2 ok\n")
    after = counted(broker, "polycast_connections_closed_total", listener=listener, reason="forbidden")
    assert after == before + 1
    assert "guest may not publish to 'secret'" in broker.log()
    with broker.connect_file("simplest") as other:  # and no later message was published
        other.send(b"pub open.end 1 x\n")
    witness.expect(b"pub open.end 1 x\n")


@pytest.mark.parametrize("subscription", [b"sub secret\n", b"sub \n", b"sub op\n", b"sub polycast/\n"])
def test_simplest_is_closed_for_a_forbidden_subscription(subscription: bytes, broker: Broker) -> None:
    with broker.connect("simplest") as peer:
        peer.send(b"sub my open\n" + subscription)
        assert peer.expect_closed() == b""


def test_fanout_is_closed_for_a_forbidden_subscription(broker: Broker) -> None:
    with broker.connect("fanout.client") as peer:
        peer.send(b"subscribe open.x\nsubscribe open.>\ntime\n")
        peer.expect(GREETING)
        assert peer.read_until(b"\n").strip().isdigit()
        peer.send(b"subscribe >\n")
        assert peer.expect_closed() == b""


def test_implicit_subscriptions_are_narrowed(broker: Broker, witness: Peer) -> None:
    """Fanout clients are subscribed to `all`, SUB sockets to everything, as far as it is allowed."""
    with broker.connect("fanout.client") as client, broker.connect("nanomsg.pub") as sub:
        client.expect(GREETING)
        client.send(b"subscribe open.>\ntime\n")
        client.read_until(b"\n")
        sub.send(SUB)
        sub.expect(PUB)
        with broker.connect_file("simplest") as other:
            other.send(b"pub all 1 x\npub secret 1 x\npub open.c 1 x\n")
        client.expect(b"open.c!x\n")
        sub.expect((8).to_bytes(8, "big") + b"open.c|x")


# -- hermod ----------------------------------------------------------------------------------------------


def test_hermod_sends_403_and_stays_open(broker: Broker, witness: Peer) -> None:
    with broker.connect("hermod.pub") as peer:
        peer.send(message("open.a", b"1") + message("secret", b"2") + message("open.a", b"3"))
        peer.expect(OK)
        assert is_forbidden(peer)
        peer.expect(OK)
    witness.expect(b"pub open.a 1 1\npub open.a 1 3\n")


def test_hermod_batches(broker: Broker, witness: Peer) -> None:
    batch = message("open.a", b"1") + message("secret", b"2") + message("open.a", b"3")
    with broker.connect("hermod.pub") as peer:
        peer.send(b'{"batch_type": "Count", "count": 3}' + batch)
        text = json.loads(peer.read_until(b"\n"))
        assert (text["status"], text["code"], text["count"]) == ("ERROR", 403, 2)
        peer.send(b'{"batch_type": "Count", "count": 1}' + message("open.a", b"4"))
        assert json.loads(peer.read_until(b"\n")) == {"status": "OK", "count": 1}
    witness.expect(b"pub open.a 1 1\npub open.a 1 3\npub open.a 1 4\n")


@pytest.mark.parametrize(
    "header", [{"topics": ["secret"]}, {"topics": ["open.a", "secret"]}, {"topics": [], "patterns": [">"]}]
)
def test_hermod_subscriptions(header: dict[str, Any], broker: Broker) -> None:
    with broker.connect("hermod.sub") as peer:
        peer.send(json.dumps(header).encode())
        assert is_forbidden(peer)
        peer.send(b'{"topics": ["open.a"], "patterns": ["open.>", "~my open"]}')
        peer.expect(OK)


@pytest.mark.parametrize("route", ["polycast/stats", "polycast/topics", "polycast/nothing", "secret"])
def test_hermod_requests(route: str, broker: Broker) -> None:
    with broker.connect("hermod.sub") as peer:
        peer.send(json.dumps({"request": route, "id": 7}).encode())
        text = json.loads(peer.read_until(b"\n"))
        assert text == {"status": "ERROR", "id": 7, "code": 403, "message": "Forbidden"}


# -- ubre and http ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [{"publish": "secret", "body": 1}, {"subscribe": "secret"}])
def test_ubre_without_an_id_is_closed(text: dict[str, Any], broker: Broker) -> None:
    with WebSocket(broker.ports["http"]) as peer:
        peer.send(frame(TEXT, json.dumps(text).encode()))
        [goodbye], rest = read_frames(peer.expect_closed())
        assert (goodbye.opcode, goodbye.payload, rest) == (CLOSE, b"\x03\xf0Forbidden", b"")


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("polycast/connections", None),
        ("polycast/close", {"name": "#1"}),
        ("polycast/publish", {"topic": "secret", "body": "x"}),
        ("polycast/publish", {"topic": "open.a", "body": "x"}),
        ("secret", None),
        ("open.route", None),
    ],
)
def test_ubre_requests(route: str, body: Any, broker: Broker) -> None:
    with broker.connect("ubre") as peer:
        peer.send(line(request=route, id=3, body=body))
        response = json.loads(peer.read_until(b"\n"))
        if route == "open.route":
            assert response == {"fail": 3, "body": "NotFound"}
        elif body and body.get("topic") == "open.a":
            assert response["success"] == 3
        else:
            assert response == {"fail": 3, "body": "Forbidden"}


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 403), ("/nothing", 403), ("/healthz", 200), ("/readyz", 200)]
)
def test_pages_need_admin(path: str, status: int, broker: Broker) -> None:
    with broker.connect("http") as peer, broker.connect_file("http") as here:
        peer.send(get(path))
        here.send(get(path))
        assert read_response(peer).status == status
        assert read_response(here).status in (200, 404)


def test_remote_peers_have_no_rights_by_default(tmp_path: Path) -> None:
    with gated(tmp_path) as broker:
        for listener in SILENT:
            with broker.connect(listener) as peer:
                assert peer.expect_closed() == b""
            reason = {"listener": listener, "reason": "forbidden"}
            assert counted(broker, "polycast_connections_closed_total", **reason) == 1
        with broker.connect("hermod.pub") as peer:
            peer.send(message("open.a", b"x"))
            assert is_forbidden(peer)
        with broker.connect("http") as peer:
            peer.send(upgrade())
            assert read_response(peer).status == 403


@pytest.mark.parametrize("listener", ["simplest", "hermod.pub", "http"])
def test_loopback_may_do_everything_by_default(listener: str) -> None:
    with Broker(listen=(listener,)) as broker, broker.connect(listener) as peer:
        words = {"http": get("/metrics"), "hermod.pub": message("polycast/x", b"")}
        peer.send(words.get(listener, b"sub \n"))
        if listener == "http":
            assert read_response(peer).status == 200
        elif listener == "hermod.pub":
            peer.expect(OK)
