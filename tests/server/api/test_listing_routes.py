"""Routes for operators: list topics, list connections, close a connection."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from access.gate import gated
from kit import hermod
from kit.broker import ALL, Broker
from kit.frames import pub
from kit.replay import metrics
from kit.room import Room
from kit.subscribers import send_request
from kit.ubre import UbrePeer, text
from kit.websocket import WebSocket
from kit.wire import wait_for


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(listen=(*ALL, "ubre")) as running:
        yield running


def refusal(broker: Broker, route: str, body: Any) -> str:
    with UbrePeer(broker.ports["ubre"]) as peer:
        return peer.refusal(route, body)


def names(response: Any) -> list[str]:
    return [row["topic"] for row in response["topics"]]


# -- topics ----------------------------------------------------------------------------------------------


def test_a_search_finds_parts_of_names_and_the_last_one_first(broker: Broker, room: Room) -> None:
    room.simplest(pub("Find/one") + pub("other") + pub("find/two") + pub("Find/one"))
    assert names(send_request(broker, "polycast/topics", {"search": "find/"})) == ["Find/one", "find/two"]
    assert names(send_request(broker, "polycast/topics", {"search": "FIND/T"})) == ["find/two"]
    assert names(send_request(broker, "polycast/topics", {"search": "find/", "limit": 1})) == ["Find/one"]
    assert names(send_request(broker, "polycast/topics", {"search": "nowhere"})) == []
    everything = send_request(broker, "polycast/topics", {"search": ""})
    assert {"Find/one", "other", "find/two"} < set(names(everything))
    assert everything["total"] == len(everything["topics"])


def test_a_search_among_many(broker: Broker, room: Room) -> None:
    """More topics than one turn of the event loop scans."""
    room.simplest(b"".join(pub(f"many/{i}") for i in range(45_000)))
    found = names(send_request(broker, "polycast/topics", {"search": "many/", "limit": 3}))
    assert found == ["many/44999", "many/44998", "many/44997"]
    assert names(send_request(broker, "polycast/topics", {"search": "many/12345"})) == ["many/12345"]


def test_just_one_topic(broker: Broker, room: Room) -> None:
    room.simplest(pub("exactly") + pub("exactly/not"))
    [row] = send_request(broker, "polycast/topics", {"topic": "exactly"})["topics"]
    assert (row["topic"], row["sequence"]) == ("exactly", 1)
    assert names(send_request(broker, "polycast/topics", {"topic": "nobody said that"})) == []


def test_the_time_of_the_last_message(broker: Broker, room: Room) -> None:
    before = send_request(broker, "polycast/topics")["time"]
    room.simplest(pub("timed"))
    response = send_request(broker, "polycast/topics", {"topic": "timed"})
    [row] = response["topics"]
    assert before - 0.001 <= datetime.fromisoformat(row["last"]).timestamp() <= response["time"]


def test_after_a_restart_the_time_of_the_last_message_is_unknown(tmp_path: Path) -> None:
    for begun in range(2):
        with Broker(data=tmp_path, listen=(*ALL, "ubre")) as broker, broker.connect("hermod.pub") as publisher:
            [old] = send_request(broker, "polycast/topics", {"topic": "kept"})["topics"] or [
                {"sequence": 0, "last": None}
            ]
            assert (old["sequence"], old["last"]) == (begun, None)
            publisher.send(hermod.message("kept", b"x"))
            publisher.expect(hermod.OK)
            assert send_request(broker, "polycast/topics", {"topic": "kept"})["topics"][0]["last"]


@pytest.mark.parametrize(
    "body", [{"search": 5}, {"topic": ["a"]}, {"search": "x" * 65_537}, {"limit": -1, "search": ""}]
)
def test_listings_that_cannot_be(broker: Broker, body: Any) -> None:
    assert refusal(broker, "polycast/topics", body).startswith("BadRequest: ")


# -- connections -----------------------------------------------------------------------------------------


def connection(broker: Broker, port: int, **requested: Any) -> dict[str, Any]:
    rows = send_request(broker, "polycast/connections", requested)["connections"]
    [found] = [row for row in rows if row["address"] == f"127.0.0.1:{port}"]
    row: dict[str, Any] = found
    return row


def test_subscriptions_and_counters_of_a_connection(broker: Broker, room: Room) -> None:
    client = room.client(b"subscribe seen.>\nsubscribe other\n")
    room.simplest(pub("seen.one") + pub("seen.two") + pub("unseen"))
    client.expect(b"seen.one!\nseen.two!\n")
    row = connection(broker, client.socket.getsockname()[1], patterns=2)
    assert row["patterns"] == ["all", "seen.>"]
    assert (row["subscriptions"], row["state"]) == (3, "open")
    assert (row["messages_in"], row["messages_out"]) == (0, 2)
    controller = room.controller()
    room.send_as_controller(controller, b"seen.three x\n")
    assert (
        connection(broker, controller.socket.getsockname()[1])["messages_in"] == 2
    )  # including the subscription of the fence
    assert "patterns" not in connection(broker, controller.socket.getsockname()[1])


def test_the_number_of_listed_patterns_is_limited(broker: Broker) -> None:
    assert refusal(broker, "polycast/connections", {"limit": 10_000, "patterns": 100}) == "Busy"
    assert refusal(broker, "polycast/connections", {"patterns": 101}).startswith("BadRequest: ")


def test_close(broker: Broker, room: Room) -> None:
    client, other = room.client(), room.client()
    name = connection(broker, client.socket.getsockname()[1])["name"]
    assert send_request(broker, "polycast/close", {"name": name}) == {"name": name}
    assert client.expect_closed() == b""
    room.send_as_client(other)
    assert f"{name} 127.0.0.1:" in broker.wait_for_log("closed by ubre #")
    closed = metrics(broker)["polycast_connections_closed_total"]
    assert closed[(("listener", "fanout.client"), ("dialect", "fanout"), ("reason", "dismissed"))] == 1
    assert refusal(broker, "polycast/close", {"name": name}).startswith("NoConnection: ")


def test_a_closed_peer_gets_the_reason_in_its_dialect(broker: Broker) -> None:
    with WebSocket(broker.ports["http"]) as socket, broker.connect("hermod.sub") as subscriber:
        subscriber.send(hermod.topics("a"))
        subscriber.expect(hermod.OK)
        for peer in (socket, subscriber):
            port = peer.socket.getsockname()[1]
            send_request(broker, "polycast/close", {"name": connection(broker, port)["name"]})
        socket.expect_close(1001)
        assert b"503" in subscriber.expect_closed()


def test_a_requester_that_closes_itself_gets_its_response_first(broker: Broker) -> None:
    with WebSocket(broker.ports["http"]) as socket:
        name = connection(broker, socket.socket.getsockname()[1])["name"]
        socket.send_text(text(request="polycast/close", id=1, body={"name": name}))
        socket.expect_text(text(success=1, body={"name": name}))
        socket.expect_close(1001)


@pytest.mark.parametrize("body", [{}, {"name": 5}, {"name": "#1", "more": 1}])
def test_closings_that_cannot_be_read(broker: Broker, body: Any) -> None:
    assert refusal(broker, "polycast/close", body).startswith("BadRequest: ")


@pytest.mark.parametrize("name", ["", "#", "#0", "#999999", "127.0.0.1"])
def test_an_unknown_connection(broker: Broker, name: str) -> None:
    assert refusal(broker, "polycast/close", {"name": name}).startswith("NoConnection: ")


# -- publishing as another dialect -----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["simplest", "hermod", "fanout", "nanomsg", "ubre"])
def test_publish_as_a_dialect(tmp_path: Path, dialect: str) -> None:
    with Broker(data=tmp_path, listen=("ubre",)) as broker:
        message = {"topic": "as/one", "body": [1], "dialect": dialect}
        assert send_request(broker, "polycast/publish", message) == {"offset": 0, "sequence": 0}
        [row] = send_request(broker, "polycast/history", {"pattern": "as/one"})
    assert row["dialect"] == dialect
    assert (row["format"], row["body"]) == (("json", [1]) if dialect == "ubre" else ("bytes", "[1]"))


@pytest.mark.parametrize(
    ("dialect", "topic", "body", "words"),
    [
        ("simplest", "a b", "", "a topic of simplest cannot contain ' '"),
        ("simplest", "", "", "simplest has no empty topic"),
        ("fanout", "a!b", "", "a topic of fanout cannot contain '!'"),
        ("fanout", "a", "1\n2", r"a payload of fanout cannot contain '\n'"),
        ("nanomsg", "a|b", "", "a topic of nanomsg cannot contain '|'"),
        ("morse", "a", "", "unknown dialect 'morse', known are simplest, hermod,"),
    ],
)
def test_messages_that_a_dialect_cannot_encode(
    broker: Broker, dialect: str, topic: str, body: str, words: str
) -> None:
    message = {"topic": topic, "body": body, "dialect": dialect}
    assert words in refusal(broker, "polycast/publish", message)


def test_a_topic_of_nanomsg_cannot_contain_the_configured_separator() -> None:
    with Broker("--set=nanomsg.separator=:", listen=("ubre",)) as broker:
        message = {"topic": "a|b", "body": "", "dialect": "nanomsg"}
        assert send_request(broker, "polycast/publish", message)["sequence"] == 0
        assert "a topic of nanomsg cannot contain ':'" in refusal(
            broker, "polycast/publish", message | {"topic": "a:b"}
        )


def test_only_admins_publish_as_another_dialect(tmp_path: Path) -> None:
    """Log readers trust the `dialect` column."""
    with gated(tmp_path, "guest may publish a", listen=("ubre",)) as broker:
        assert send_request(broker, "polycast/publish", {"topic": "a", "dialect": "ubre"})["sequence"] == 0
        assert refusal(broker, "polycast/publish", {"topic": "a", "dialect": "hermod"}) == "Forbidden"
        for route in ("topics", "connections", "close", "stats", "log"):
            assert refusal(broker, f"polycast/{route}", {}) == "Forbidden"


# -- counters --------------------------------------------------------------------------------------------


def test_stats_have_the_listeners_and_the_limits(broker: Broker) -> None:
    stats = send_request(broker, "polycast/stats")
    assert [(row["listener"], row["address"]) for row in stats["addresses"]] == broker.addresses
    assert stats["limits"] == {"payload_bytes": 16 * 1024 * 1024, "topic_bytes": 1024, "line_bytes": 65_536}


def test_stats_contain_the_size_of_the_log_and_the_sync_time(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=("ubre",)) as broker:
        send_request(broker, "polycast/publish", {"topic": "a", "body": "x" * 1000})
        log = send_request(broker, "polycast/log")
        files = [path for path in (tmp_path / "log").iterdir() if path.suffix == ".arrows"]
        assert (log["segments"], log["bytes"]) == (len(files), sum(path.stat().st_size for path in files))
        stats = wait_for(
            lambda: (found := send_request(broker, "polycast/stats"))["log_syncs"] and found, "a sync"
        )
        assert stats["log_sync_seconds"] > 0
