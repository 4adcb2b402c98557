"""The routes `polycast/publish` and `polycast/history`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kit import hermod
from kit.broker import Broker
from kit.frames import pub
from kit.replay import numbered, publish, read_messages, subscribe, total
from kit.subscribers import LISTEN, send_request
from kit.ubre import UbrePeer, envelope, frame, line
from kit.wire import Peer, wait_for

SMALL = "--set=log.segment_bytes=65536"


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose log has sealed and hot segments."""
    data = tmp_path_factory.mktemp("data")
    with Broker(SMALL, data=data, listen=LISTEN) as broker, broker.connect("hermod.pub") as publisher:
        for begin in range(0, 1000, 50):
            publish(publisher, numbered("orders.eu", range(begin, begin + 50), 300))
            publish(publisher, numbered("orders.us", range(begin, begin + 10), 300))
        wait_for(lambda: total(broker, "log_segments_sealed_total") > 2, "sealed segments")
        publish(publisher, [("reorders", b"x"), ("time", b"1"), ("polycast/own", b"z")])
        yield broker


def history(broker: Broker, **requested: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = send_request(broker, "polycast/history", requested)
    return found


def numbers(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["topic"], row["sequence"]) for row in rows]


def refusal(broker: Broker, route: str, body: Any) -> str:
    with UbrePeer(broker.ports["ubre"]) as peer:
        return peer.refusal(route, body)


# -- selection -------------------------------------------------------------------------------------------


def test_the_last_ones_oldest_first(logged: Broker) -> None:
    rows = history(logged, pattern="orders.eu", limit=3)
    assert numbers(rows) == [("orders.eu", 997), ("orders.eu", 998), ("orders.eu", 999)]
    assert rows[0]["body"] == "997".ljust(300, ".") and rows[0]["format"] == "bytes"
    assert [row["offset"] for row in rows] == sorted({row["offset"] for row in rows})


def test_the_default_limit_is_100(logged: Broker) -> None:
    assert numbers(history(logged, pattern="orders.eu")) == [("orders.eu", n) for n in range(900, 1000)]


def test_without_bodies(logged: Broker) -> None:
    for requested in ({}, {"from": "earliest"}):
        rows = history(logged, pattern="orders.>", limit=3, **requested)
        assert history(logged, pattern="orders.>", limit=3, bodies=False, **requested) == [
            {**row, "body": None} for row in rows
        ]


@pytest.mark.parametrize("limit", [1, 9, 10, 11, 199, 200, 201, 10_000])
def test_limits_within_one_segment_and_across_segments(logged: Broker, limit: int) -> None:
    count = min(limit, 200)
    wanted = [("orders.us", n) for n in range(200)]
    assert numbers(history(logged, pattern="orders.us", limit=limit)) == wanted[-count:]
    found = history(logged, pattern="orders.us", limit=limit, **{"from": "earliest"})
    assert numbers(found) == wanted[:count]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders.eu", {"orders.eu"}),
        ("orders.>", {"orders.eu", "orders.us"}),
        ("~orders", {"orders.eu", "orders.us", "reorders"}),
        (">", {"orders.eu", "orders.us", "reorders", "time"}),
        ("=time", {"time"}),
        ("polycast/own", {"polycast/own"}),
        ("polycast/>", {"polycast/own"}),
        ("nothing", set()),
    ],
)
def test_patterns(logged: Broker, pattern: str, topics: set[str]) -> None:
    for more in ({}, {"from": "earliest"}):
        rows = history(logged, pattern=pattern, limit=10_000, **more)
        assert {row["topic"] for row in rows} == topics
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets))


def test_everything_equals_the_log(logged: Broker) -> None:
    rows = history(logged, pattern=">", limit=10_000)
    with subscribe(logged, patterns=[">"], since="earliest") as subscriber:
        received = read_messages(subscriber, len(rows))
    assert numbers(rows) == [(each.topic, each.sequence) for each in received]


def test_from_a_sequence(logged: Broker) -> None:
    found = history(logged, pattern="orders.eu", limit=3, **{"from": {"orders.eu": 498}})
    assert numbers(found) == [("orders.eu", 498), ("orders.eu", 499), ("orders.eu", 500)]
    assert history(logged, pattern="orders.eu", **{"from": {"orders.eu": 1000}}) == []
    assert numbers(history(logged, pattern="time", **{"from": {"topics": {"time": 0}}})) == [("time", 0)]


def test_from_a_time(logged: Broker) -> None:
    rows = history(logged, pattern="orders.eu", limit=1000)
    middle = rows[500]["time"]
    found = history(logged, pattern="orders.eu", limit=1000, **{"from": {"time": middle}})
    assert found == [row for row in rows if row["time"] >= middle]
    assert history(logged, pattern=">", **{"from": {"time": "2999-01-01"}}) == []


def test_only_since_an_offset(logged: Broker) -> None:
    rows = history(logged, pattern="orders.>", limit=1000)
    middle = rows[600]["offset"]
    assert history(logged, pattern="orders.>", since=middle, limit=1000) == rows[600:]
    assert history(logged, pattern="orders.>", since=middle, limit=3) == rows[-3:]
    assert history(logged, pattern="orders.>", since=rows[-1]["offset"] + 1) == []
    assert history(logged, pattern=">", since=10**9) == []
    begin: dict[str, Any] = {"from": {"topics": {"orders.eu": 0}}}
    [row] = history(logged, pattern="orders.eu", since=middle, limit=1, **begin)
    assert row == next(each for each in rows[600:] if each["topic"] == "orders.eu")


def test_from_latest_is_empty(logged: Broker) -> None:
    assert history(logged, pattern=">", **{"from": "latest"}) == []


def test_an_empty_log(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        assert history(broker, pattern=">") == []
        assert history(broker, pattern=">", **{"from": "earliest"}) == []
        assert history(broker, pattern="a", **{"from": {"a": 0}}) == []


def test_times_are_those_of_publishing(logged: Broker) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    send_request(logged, "polycast/publish", {"topic": "clock", "body": "now"})
    [row] = history(logged, pattern="clock")
    assert before <= datetime.fromisoformat(row["time"]) <= datetime.now(UTC)


def test_bodies_are_those_of_the_formats(logged: Broker) -> None:
    with UbrePeer(logged.ports["ubre"]) as peer:
        peer.send_message(publish="formats", body="text")
        peer.send_message(publish="formats", body={"json": [1, 2.5, None]})
        peer.send_message(publish="formats")
        peer.flush()
    with logged.connect("hermod.pub") as publisher:
        publish(publisher, [("formats", b"utf-8 \xc3\xa9"), ("formats", b"\xff\x00"), ("formats", b"")])
    rows = history(logged, pattern="formats")
    found: list[tuple[str, Any]] = [(row["format"], row["body"]) for row in rows]
    assert found[:3] == [("text", "text"), ("json", {"json": [1, 2.5, None]}), ("none", None)]
    assert found[3:] == [("bytes", "utf-8 é"), ("bytes", {"$base64": "/wA="}), ("bytes", "")]
    assert base64.b64decode(found[4][1]["$base64"]) == b"\xff\x00"


# -- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "pattern"),
        ("orders", "expected an object"),
        ({"pattern": 7}, "pattern"),
        ({"pattern": ""}, "empty"),
        ({"pattern": ">", "limit": 0}, "limit"),
        ({"pattern": ">", "limit": 10_001}, "10000"),
        ({"pattern": ">", "limit": 1.5}, "limit"),
        ({"pattern": ">", "from": "yesterday"}, "earliest, latest"),
        ({"pattern": ">", "from": {"a": 1}}, "from names"),
        ({"pattern": "a", "from": {"b": 1}}, "from names"),
        ({"pattern": "a", "from": {"a": -1}}, "-1"),
        ({"pattern": "a", "from": {"time": "noon"}}, "noon"),
        ({"pattern": ">", "since": "earliest"}, "since"),
    ],
)
def test_bad_requests(logged: Broker, body: Any, words: str) -> None:
    response = refusal(logged, "polycast/history", body)
    assert response.startswith("BadRequest") and words in response, response


def test_without_a_log_there_is_no_history() -> None:
    with Broker(listen=LISTEN) as broker:
        assert "has no log" in refusal(broker, "polycast/history", {"pattern": ">"})
        assert send_request(broker, "polycast/publish", {"topic": "t", "body": 1}) == {
            "offset": None,
            "sequence": 0,
        }


# -- requesters ------------------------------------------------------------------------------------------


def test_a_half_closed_requester_gets_its_responses(logged: Broker) -> None:
    with UbrePeer(logged.ports["ubre"]) as peer:
        for number in range(5):
            peer.send_message(request="polycast/history", id=number, body={"pattern": "orders.eu", "limit": 1})
        peer.send_message(request="polycast/publish", id=5, body={"topic": "half", "body": 1})
        peer.shut()
        responses = [json.loads(text) for text in peer.expect_closed().splitlines()]
    assert sorted(response["success"] for response in responses) == list(range(6))


def test_in_binary(logged: Broker) -> None:
    with logged.connect("ubre") as peer:
        requested = envelope("polycast/history", body={"pattern": "reorders"})
        peer.send(frame("R", "7", requested))
        head = frame("s", "7")[:3]
        peer.expect(head)
        size = int.from_bytes(peer_take(peer, 4), "big")
        assert peer_take(peer, 1) == b"7"
        [row] = json.loads(peer_take(peer, size))
        assert (row["topic"], row["body"]) == ("reorders", "x")


def peer_take(peer: Peer, size: int) -> bytes:
    while len(peer.read) < size:
        more = peer.socket.recv(65536)
        assert more
        peer.read += more
    head, peer.read = peer.read[:size], peer.read[size:]
    return head


def test_a_requester_that_disconnects_early_affects_no_other(logged: Broker) -> None:
    for _ in range(20):
        with UbrePeer(logged.ports["ubre"]) as peer:
            peer.send(line(request="polycast/history", id=1, body={"pattern": "~nothing like it"}) * 5)
    assert send_request(logged, "polycast/stats")["log_failed"] == 0


def test_the_size_of_a_response_is_limited(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker, broker.connect("hermod.pub") as publisher:
        for begin in range(0, 40, 4):
            publish(publisher, numbered("large", range(begin, begin + 4), 1_000_000))
        first = history(broker, pattern=">", limit=1000, **{"from": "earliest"})
        assert 8 <= len(first) < 30
        assert [row["sequence"] for row in first] == list(range(len(first)))
        last = history(broker, pattern=">", limit=1000)
        assert 8 <= len(last) < 30
        assert [row["sequence"] for row in last] == list(range(40 - len(last), 40))


# -- publishing by request -------------------------------------------------------------------------------


def test_a_response_to_publish_means_durable(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        responses = [
            send_request(broker, "polycast/publish", {"topic": "t", "body": number}) for number in range(5)
        ]
        assert responses == [{"offset": number, "sequence": number} for number in range(5)]
        broker.kill()
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        assert [row["body"] for row in history(broker, pattern="t")] == [0, 1, 2, 3, 4]
        response = send_request(broker, "polycast/publish", {"topic": "t", "body": 5})
        assert response["offset"] > 4 and response["sequence"] > 4
        [row] = history(broker, pattern="t", limit=1)
        assert (row["offset"], row["sequence"], row["body"]) == (response["offset"], response["sequence"], 5)


def test_many_requests_in_one_packet_get_responses_in_order(logged: Broker) -> None:
    with UbrePeer(logged.ports["ubre"]) as peer:
        for number in range(50):
            peer.send_message(request="polycast/publish", id=number, body={"topic": "packet", "body": number})
        responses = [json.loads(peer.read_until(b"\n")) for _ in range(50)]
    assert [response["success"] for response in responses] == list(range(50))
    assert [response["body"]["sequence"] for response in responses] == list(range(50))
    rows = history(logged, pattern="packet")
    assert [row["offset"] for row in rows] == [response["body"]["offset"] for response in responses]


def test_with_forwarding_the_offset_is_that_of_the_original_name(tmp_path: Path) -> None:
    with Broker("--forward", data=tmp_path, listen=LISTEN) as broker, broker.connect("simplest") as other:
        other.send(b"sub //fwd/t\n" + pub("before", b"x"))
        wait_for(lambda: total(broker, "log_durable_offset") == 1, "it to be kept")
        response = send_request(broker, "polycast/publish", {"topic": "//t", "body": "x"})
        [row] = history(broker, pattern="//t")
        assert response == {"offset": row["offset"], "sequence": row["sequence"]} == {"offset": 1, "sequence": 0}


def test_an_acknowledged_hermod_message_is_in_the_history(logged: Broker) -> None:
    with logged.connect("hermod.pub") as publisher:
        for number in range(20):
            publisher.send(hermod.message("at once", b"%d" % number))
            publisher.expect(hermod.OK)
            [row] = history(logged, pattern="at once", limit=1)
            assert row["body"] == str(number)
