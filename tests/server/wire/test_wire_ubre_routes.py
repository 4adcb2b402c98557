"""Routes of the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.room import Room
from kit.ubre import UbrePeer, envelope, frame, line, text
from kit.websocket import WebSocket


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(listen=(*ALL, "ubre")) as running:
        yield running


@pytest.fixture
def peer(broker: Broker) -> Iterator[UbrePeer]:
    with UbrePeer(broker.ports["ubre"]) as connected:
        yield connected


def request_route(peer: UbrePeer, route: str, **body: Any) -> Any:
    peer.send_message(request=f"polycast/{route}", id=1, **body)
    response = json.loads(peer.read_until(b"\n"))
    assert response.get("success") == 1, response
    return response["body"]


def refusal(peer: UbrePeer, route: str, **body: Any) -> str:
    peer.send_message(request=f"polycast/{route}", id=1, **body)
    response = json.loads(peer.read_until(b"\n"))
    assert response.pop("fail") == 1
    reason = response.pop("body")
    assert isinstance(reason, str) and not response
    assert "Traceback" not in reason and "\n" not in reason
    return reason


# -- status ----------------------------------------------------------------------------------------------


def test_topics(peer: UbrePeer, room: Room) -> None:
    peer.send_message(subscribe="seen/twice")
    peer.send_message(publish="seen/twice", body=1)
    room.simplest(pub("seen/twice") + pub("seen/once"))
    peer.expect_message(publish="seen/twice", body=1)
    peer.expect_message(publish="seen/twice", body="")
    response = request_route(peer, "topics")
    rows = {row["topic"]: row for row in response["topics"]}
    assert all(row.pop("last") for row in rows.values())
    assert response["total"] == len(rows)
    assert rows["seen/twice"] == {"topic": "seen/twice", "sequence": 2, "subscribers": 1}
    assert rows["seen/once"] == {"topic": "seen/once", "sequence": 1, "subscribers": 0}
    peer.send_message(unsubscribe="seen/twice")
    rows = {row["topic"]: row for row in request_route(peer, "topics", body={})["topics"]}
    assert rows["seen/twice"]["subscribers"] == 0


def test_no_more_rows_than_requested(peer: UbrePeer) -> None:
    peer.send(b"".join(line(publish=f"many/{i}") for i in range(20)))
    for limit in (0, 1, 7):
        response = request_route(peer, "topics", body={"limit": limit})
        assert len(response["topics"]) == limit and response["total"] >= 20
    with UbrePeer(peer.socket.getpeername()[1]) as second:
        second.flush()
        response = request_route(peer, "connections", body={"limit": 1})
        assert len(response["connections"]) == 1 and response["total"] >= 2


def test_connections(broker: Broker, peer: UbrePeer) -> None:
    with WebSocket(broker.ports["http"]) as socket:
        socket.send_text(text(subscribe="a"))
        socket.send_text(text(subscribe="b"))
        socket.flush()
        rows = {row["address"]: row for row in request_route(peer, "connections")["connections"]}
        here = rows[f"127.0.0.1:{socket.socket.getsockname()[1]}"]
        assert (here["listener"], here["dialect"], here["subscriptions"]) == ("http", "ubre", 2)
        assert here["name"].startswith("#") and here["queue_bytes"] == 0 and here["bytes_out"] > 0
        assert here["open_seconds"] >= here["idle_seconds"] >= 0
        assert here["identity"] == "loopback"
        there = rows[f"127.0.0.1:{peer.socket.getsockname()[1]}"]
        assert (there["listener"], there["dialect"], there["subscriptions"]) == ("ubre", "ubre", 0)


def test_stats(peer: UbrePeer) -> None:
    before = request_route(peer, "stats")
    peer.send(b"{\n{}\n" + line(publish="counted") + line(subscribe="served", body={"serve": True}))
    after = request_route(peer, "stats")
    listeners = [
        {(row["listener"], row["dialect"]): row for row in stats["listeners"]} for stats in (before, after)
    ]
    old, new = [rows["ubre", "ubre"] for rows in listeners]
    assert new["messages_in"] == old["messages_in"] + 1
    for reason in ("malformed JSON", "unknown message"):
        assert new["refused"][reason] == old["refused"].get(reason, 0) + 1
    assert new["open"] == 1 and new["bytes_in"] > old["bytes_in"]
    assert after["routes"] == before["routes"] + 1
    assert after["uptime_seconds"] >= before["uptime_seconds"] > 0
    assert after["requests_open"] == 0 and after["connections"] >= 1
    assert ("simplest", "simplest") in counters_of(after)


def counters_of(stats: Any) -> dict[tuple[str, str], Any]:
    return {(row["listener"], row["dialect"]): row for row in stats["listeners"]}


def test_history_needs_the_log(peer: UbrePeer) -> None:
    assert "log" in refusal(peer, "history", body={"pattern": ">"})


def test_routes_that_there_are_not(peer: UbrePeer) -> None:
    for route in ("", "nothing", "topics/", "Topics"):
        assert refusal(peer, route) == "NotFound"


def test_peers_cannot_serve_routes_of_the_broker(broker: Broker, peer: UbrePeer) -> None:
    with UbrePeer(broker.ports["ubre"]) as thief:
        thief.send(line(subscribe="polycast/stats", body={"serve": True}))
        thief.send(line(subscribe="polycast/mine", body={"serve": True}))
        thief.flush()
        assert "version" in request_route(peer, "stats")
        assert refusal(peer, "mine") == "NotFound"
        thief.flush()


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("topics", {"limit": -1}),
        ("topics", {"limit": 10_001}),
        ("topics", {"limit": "all"}),
        ("topics", {"limits": 5}),
        ("topics", []),
        ("topics", "all"),
        ("connections", 5),
        ("stats", {"all": True}),
    ],
)
def test_bodies_that_cannot_be_read(peer: UbrePeer, route: str, body: Any) -> None:
    assert refusal(peer, route, body=body).startswith("BadRequest: ")


def test_a_flood_of_listings_is_cut_short(peer: UbrePeer) -> None:
    """All are handled in one turn; no other connection is served meanwhile."""
    peer.send(b"".join(line(request="polycast/topics", id=i, body={"limit": 10_000}) for i in range(1000)))
    responses = [json.loads(peer.read_until(b"\n")) for _ in range(1000)]
    assert "success" in responses[0]
    assert all(response.get("body") == "Busy" for response in responses if "fail" in response)
    assert request_route(peer, "topics")


# -- publishing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "payload"),
    [
        ({"body": "é"}, "é".encode()),
        ({"body": {"a": [1.5]}}, b'{"a":[1.5]}'),
        ({"body": None}, b"null"),
        ({}, b""),
        ({"body": "x", "format": "text"}, b"x"),
        ({"body": "x", "format": "json"}, b'"x"'),
        ({"body": {"$base64": "/wA="}}, b'{"$base64":"/wA="}'),
        ({"body": [1], "format": "json"}, b"[1]"),
        ({"body": "é", "format": "bytes"}, "é".encode()),
        ({"body": {"$base64": "/wA="}, "format": "bytes"}, b"\xff\0"),
        ({"format": "none"}, b""),
        ({"body": "x", "format": None}, b"x"),
    ],
)
def test_publish(peer: UbrePeer, room: Room, published: dict[str, Any], payload: bytes) -> None:
    simplest = room.simplest(b"sub by/request\n")
    first = request_route(peer, "publish", body={"topic": "by/request", **published})
    second = request_route(peer, "publish", body={"topic": "by/request", **published})
    assert first == {"offset": None, "sequence": first["sequence"]}
    assert second["sequence"] == first["sequence"] + 1
    simplest.expect(pub("by/request", payload) * 2)


def test_formats_are_preserved(peer: UbrePeer) -> None:
    peer.send_message(subscribe="formats")
    bodies: list[dict[str, Any]] = [{"body": "x"}, {"body": "x", "format": "json"}, {"body": {"a": 1}}, {}]
    for published in bodies:
        peer.send_message(request="polycast/publish", id=1, body={"topic": "formats", **published})
        shown = {"body": published["body"]} if published else {}
        received = sorted([peer.read_until(b"\n"), peer.read_until(b"\n")], key=lambda each: b"success" in each)
        assert received[0] == line(publish="formats", **shown)


def test_sequences_count_all_publications(peer: UbrePeer) -> None:
    for expected in (0, 2, 4):
        assert request_route(peer, "publish", body={"topic": "sequence"})["sequence"] == expected
        peer.send_message(publish="sequence")


def test_publish_in_binary(peer: UbrePeer, room: Room) -> None:
    simplest = room.simplest(b"sub by/binary\n")
    peer.send(frame("R", "1", envelope("polycast/publish", body={"topic": "by/binary", "body": "x"})))
    peer.expect(frame("s", "1", b'{"offset":null,"sequence":0}'))
    simplest.expect(pub("by/binary", b"x"))


def test_publications_by_request_are_counted(peer: UbrePeer) -> None:
    def messages_in() -> int:
        return sum(
            row["messages_in"] for row in request_route(peer, "stats")["listeners"] if row["listener"] == "ubre"
        )

    before = messages_in()
    request_route(peer, "publish", body={"topic": "counted"})
    refusal(peer, "publish", body={"topic": 5})
    assert messages_in() == before + 1


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "orders",
        {},
        {"topic": 5},
        {"topic": None, "body": 1},
        {"topic": "a", "format": "xml"},
        {"topic": "a", "format": 5},
        {"topic": "a", "body": 1, "format": "text"},
        {"topic": "a", "body": 1, "format": "bytes"},
        {"topic": "a", "body": {"$base64": "/w"}, "format": "bytes"},
        {"topic": "a", "body": {"$base64": "/wA=!"}, "format": "bytes"},
        {"topic": "a", "body": {"$base64": 5}, "format": "bytes"},
        {"topic": "a", "body": {"$base64": "/wA=", "more": 1}, "format": "bytes"},
        {"topic": "a", "body": "x", "format": "none"},
        {"topic": "a", "format": "text"},
        {"topic": "a", "format": "json"},
        {"topic": "a", "format": "bytes"},
        {"topic": "a", "body": 1, "offset": 5},
    ],
)
def test_publish_errors(peer: UbrePeer, body: Any) -> None:
    peer.send_message(subscribe="a")
    assert refusal(peer, "publish", body=body).startswith("BadRequest: ")
    peer.flush()


def test_publish_within_limits() -> None:
    limits = ("--set=limits.payload_bytes=200", "--set=limits.topic_bytes=16")
    with Broker(*limits, listen=("ubre",)) as broker, UbrePeer(broker.ports["ubre"]) as peer:
        request_route(peer, "publish", body={"topic": "t" * 16, "body": "x" * 100})
        assert "limits.topic_bytes" in refusal(peer, "publish", body={"topic": "t" * 17})
        peer.flush()
