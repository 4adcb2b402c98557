"""Requests over `hermod`: to routes of the broker, and to responders of other dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit import hermod
from kit.broker import Broker
from kit.replay import numbered, publish
from kit.subscribers import LISTEN
from kit.ubre import UbrePeer
from kit.wire import Peer
from polycast.client import connect
from polycast.dialects.client_requests import to_body


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("data"), listen=LISTEN) as broker:
        yield broker


def to_request(route: str, number: int, **more: Any) -> bytes:
    return json.dumps({"request": route, "id": number, **more}).encode()


def read_response(peer: Peer) -> tuple[dict[str, Any], bytes]:
    head = json.loads(peer.read_until(b"}"))
    while len(peer.read) < head.get("payload_size", 0) + 1:
        more = peer.socket.recv(1 << 16)
        assert more
        peer.read += more
    size = head.get("payload_size", 0)
    payload, peer.read = peer.read[:size], peer.read[size:]
    peer.expect(b"\n")
    return head, payload


@pytest.mark.parametrize("listener", ["hermod.pub", "hermod.sub"])
def test_on_either_port(logged: Broker, listener: str) -> None:
    with logged.connect(listener) as peer:
        peer.send(to_request("polycast/stats", 7))
        head, payload = read_response(peer)
        assert head == {"status": "OK", "id": 7, "format": "json", "payload_size": len(payload)}
        assert json.loads(payload)["connections"] >= 1
        peer.send(to_request("nothing", 8) + to_request("polycast/topics", 9, body={"limit": -1}))
        assert read_response(peer)[0] == {"status": "ERROR", "id": 8, "code": 404, "message": "NotFound"}
        assert read_response(peer)[0]["code"] == 400


def test_messages_and_requests_beside_each_other(logged: Broker) -> None:
    """OKs keep their order; a response is sent when it is available."""
    with logged.connect("hermod.pub") as peer:
        history = to_request("polycast/history", 1, body={"pattern": "beside"})
        peer.send(hermod.message("beside", b"1") + history + hermod.message("beside", b"2"))
        heads = [json.loads(peer.read_until(b"}")) for _ in range(1)]
        while len(heads) < 3:
            if size := heads[-1].get("payload_size"):
                while len(peer.read) < size:
                    peer.read += peer.socket.recv(1 << 16)
                peer.read = peer.read[size:]
            peer.expect(b"\n")
            heads.append(json.loads(peer.read_until(b"}")))
    assert sorted("id" in head for head in heads) == [False, False, True]
    assert all(head["status"] == "OK" for head in heads)


def test_a_request_to_a_ubre_responder(logged: Broker) -> None:
    with UbrePeer(logged.ports["ubre"]) as server, logged.connect("hermod.pub") as peer:
        server.send_message(subscribe="add", body={"serve": True})
        server.flush()
        peer.send(to_request("add", 3, body=[1, 2]) + to_request("add", 4, body="x"))
        for succeeds in (True, False):
            requested = json.loads(server.read_until(b"\n"))
            assert requested["request"] == "add"
            if succeeds:
                assert requested["body"] == [1, 2]
                server.send_message(success=requested["id"], body={"sum": 3})
            else:
                assert requested["body"] == "x"
                server.send_message(fail=requested["id"], body="no numbers")
        head, payload = read_response(peer)
        assert (head["id"], head["format"], json.loads(payload)) == (3, "json", {"sum": 3})
        assert read_response(peer)[0] == {"status": "ERROR", "id": 4, "code": 500, "message": "no numbers"}


def test_a_half_closed_requester_gets_its_responses(logged: Broker) -> None:
    with logged.connect("hermod.pub") as peer:
        publish(peer, numbered("shut", range(3)))
        peer.send(b"".join(to_request("polycast/history", n, body={"pattern": "shut"}) for n in range(5)))
        peer.shut()
        found = [read_response(peer)[0]["id"] for _ in range(5)]
        assert sorted(found) == list(range(5)) and peer.expect_closed() == b""


@pytest.mark.parametrize("publishing", [True, False])
def test_the_client(logged: Broker, publishing: bool) -> None:
    port = logged.ports["hermod.pub" if publishing else "hermod.sub"]
    with connect("hermod", f"tcp://127.0.0.1:{port}", publishing=publishing) as client:
        response = client.request("polycast/topics", to_body({"limit": 0}))
        assert response.success and response.value["topics"] == []
        refused = client.request("polycast/topics", to_body({"limit": "many"}))
        assert not refused.success and "limit" in refused.value
        assert client.request("nobody/serves/this").value == "NotFound"


def test_without_a_log() -> None:
    with Broker(listen=LISTEN) as broker, broker.connect("hermod.pub") as peer:
        peer.send(to_request("polycast/history", 1, body={"pattern": ">"}))
        assert read_response(peer)[0]["code"] == 501


def test_a_response_of_megabytes(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, numbered("large", range(4), 1_000_000))
        peer.send(to_request("polycast/history", 1, body={"pattern": "large"}))
        head, payload = read_response(peer)
        assert head["payload_size"] > 4_000_000 and len(json.loads(payload)) == 4
