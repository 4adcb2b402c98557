"""Messages that the log cannot deliver: the notices to subscribers and operators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from kit import hermod
from kit.broker import Broker
from kit.http import get, read_response
from kit.program import polycast
from kit.replay import handshake, metrics, publish, read_messages, subscribe, total, wait_for_total
from kit.subscribers import LISTEN, send_request
from kit.wire import Peer, wait_for
from log.log_builder import LogBuilder, flip, stop, time_of
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal

DAMAGED = {"code": 410, "first": 100, "next": 200}
TEXT = "the messages from offset 100 up to 200 cannot be delivered: the log is damaged there"
SMALL = ("--set=log.segment_bytes=65536", "--set=log.retain_bytes=200000")


class Damaged(NamedTuple):
    broker: Broker
    data: Path

    def subscribe(self, since: object = "earliest", **more: int) -> Peer:
        peer = self.broker.connect("hermod.sub")
        peer.send(handshake("a", since=since, patterns=["b.>"], **more))
        peer.expect(hermod.OK)
        return peer


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    """Offsets 0 to 299 in three row groups of one sealed segment; the second is damaged. 300 to 309 are hot."""
    data = tmp_path_factory.mktemp("data")
    (data / "log").mkdir()
    builder = LogBuilder(data / "log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "ROW_GROUP_ROWS", 100)
        path = seal(builder.segment(100, 100, 100))
    builder.segment(10)
    stop(builder)
    assert path is not None
    flip(path, pq.read_metadata(path).row_group(1).column(6).data_page_offset + 40)
    with Broker(data=data, events=True, listen=LISTEN) as broker:
        yield Damaged(broker, data)


def read_notice(peer: Peer) -> dict[str, Any]:
    notice = hermod.read_error(peer)
    assert notice.pop("message")
    return notice


def expect_around(peer: Peer) -> None:
    """The messages before the damage, the notice in place of the others, and the rest."""
    assert len(read_messages(peer, 100)) == 100
    assert read_notice(peer) == DAMAGED
    assert len(read_messages(peer, 110)) == 110


def test_the_subscriber_gets_a_notice_in_place_of_the_messages(damaged: Damaged) -> None:
    with damaged.subscribe() as peer:
        expect_around(peer)
        with damaged.broker.connect("hermod.pub") as publisher:
            publish(publisher, [("a", b"live")])
        assert [message.payload for message in read_messages(peer, 1)] == [b"live"], "the connection goes on"
    wait_for_total(damaged.broker, "log_segments_quarantined_total", 1)
    wait_for_total(damaged.broker, "log_messages_unreadable", 100)
    with damaged.subscribe() as peer:  # now the loss is a recorded gap
        expect_around(peer)


def test_the_notice_keeps_its_place_behind_withheld_messages(damaged: Damaged) -> None:
    with damaged.subscribe(window=60, batch=40) as peer:
        assert len(read_messages(peer, 60)) == 60
        peer.send(hermod.OK)
        assert len(read_messages(peer, 40)) == 40
        assert read_notice(peer) == DAMAGED
        for _ in range(2):  # the notice needs no acknowledgement: two groups are open
            peer.send(hermod.OK)
        assert read_messages(peer, 20)


@pytest.mark.parametrize("since", ["@100", "@150", {"time": time_of(150) // 1000}])
def test_a_start_inside_the_damage(damaged: Damaged, since: object) -> None:
    with damaged.subscribe(since) as peer:
        notice = read_notice(peer)
        assert 100 <= notice["first"] <= 150
        assert notice["next"] == 200
        assert read_messages(peer, 1)


def test_no_notice_behind_the_damage(damaged: Damaged) -> None:
    with damaged.subscribe("@200") as peer:
        assert len(read_messages(peer, 110)) == 110


def test_operators_see_it(damaged: Damaged) -> None:
    with damaged.subscribe() as peer:
        expect_around(peer)
    wait_for_total(damaged.broker, "log_messages_unreadable", 100)
    missed = metrics(damaged.broker)["polycast_messages_missed_total"]
    assert missed[("listener", "hermod.sub"), ("dialect", "hermod")] >= 100
    with damaged.broker.connect("http") as peer:
        peer.send(get("/readyz"))
        response = read_response(peer)
    assert (response.status, response.body.decode().splitlines()) == (
        200,
        [
            "ready",
            "warning: damage was found in the log: 100 messages of the log are lost; "
            "polycast log info lists their offsets",
        ],
    )
    with subscribe(damaged.broker, "polycast/events/miss", since="@310") as events:
        [event] = [json.loads(message.payload) for message in read_messages(events, 1)]
    assert event["dialect"] == "hermod"
    assert (event["first"], event["next"]) == (100, 200)
    assert "00000000000000000000.parquet" in event["reason"]


def test_a_request_names_the_missing_messages(damaged: Damaged) -> None:
    rows = send_request(damaged.broker, "polycast/history", {"pattern": "a", "from": "earliest"})
    last = send_request(damaged.broker, "polycast/history", {"pattern": "a", "limit": 60})
    missing = {"missing": {"first": 100, "next": 200, "reason": "the log is damaged there"}}
    for found in (rows, last):
        [index] = [index for index, row in enumerate(found) if row == missing]
        assert found[index - 1]["offset"] < 100 and found[index + 1]["offset"] >= 200


def test_http_names_the_missing_messages(damaged: Damaged) -> None:
    """In a page of messages, and as an event in a stream."""
    gap = {"first": 100, "next": 200, "reason": "the log is damaged there"}
    with damaged.broker.connect("http") as peer:
        peer.send(get("/topics/a?limit=1000") + get("/topics/a?from=@200") + get("/topics/a?from=@150"))
        whole, behind, within = (json.loads(read_response(peer).body) for _ in range(3))
        assert (whole["gaps"], within["gaps"], "gaps" in behind) == ([gap], [{**gap, "first": 150}], False)
        peer.send(get("/events?pattern=%3E", "Last-Event-ID: 98"))
        peer.read_until(b"event: log\n")
        peer.read_until(b"id: 99\n")
        peer.read_until(b"id: 199\n")
        peer.expect(b"event: gap\ndata: " + json.dumps(gap, separators=(",", ":")).encode() + b"\n\nid: 200\n")


def test_the_commands_name_the_missing_messages(damaged: Damaged) -> None:
    at = f"tcp://127.0.0.1:{damaged.broker.ports['hermod.sub']}"
    shown = polycast("sub", "a", "b.>", "--from", "earliest", "--count", "210", "--at", at)
    assert shown.out.count(b"\n") >= 210
    assert TEXT in shown.err.splitlines()
    wait_for_total(damaged.broker, "log_segments_quarantined_total", 1)
    printed = polycast("log", "cat", "--topic", "a", "--topic", "b.>", "--data", str(damaged.data))
    assert "offsets 100 to 199 cannot be read: lost to damage" in printed.err
    info = json.loads(polycast("log", "info", "--json", "--data", str(damaged.data)).out)
    verified = polycast("log", "verify", "--data", str(damaged.data)).out.decode()
    assert [(gap["first"], gap["next"]) for gap in info["gaps"]] == [(100, 200)]
    assert "note: gap: lost to damage, see quarantine/" in verified
    assert verified.rstrip().endswith("damage: 0, notes: 1")


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Retention has removed messages; a restart has removed them from memory as well."""
    data = tmp_path_factory.mktemp("data")
    with Broker(*SMALL, data=data) as broker, broker.connect("hermod.pub") as publisher:
        for begin in range(0, 2000, 100):
            publish(publisher, [("t", b"%d" % n + b"." * 500) for n in range(begin, begin + 100)])
        wait_for(lambda: total(broker, "log_segments_removed_total") > 2, "removed segments")
    with Broker(SMALL[0], data=data, listen=LISTEN) as broker:
        yield broker


@pytest.mark.parametrize("since", [{"t": 3}, "@3", {"time": 0}])
def test_messages_that_retention_removed(shortened: Broker, since: object) -> None:
    with subscribe(shortened, "t", since=since) as peer:
        error = hermod.read_error(peer)
        [first] = read_messages(peer, 1)
        assert error["code"] == 410
        assert str(error["message"]).endswith("cannot be delivered: removed by retention")
        assert error["first"] == (3 if since == "@3" else 0)
        assert error["next"] == first.sequence
    rows = send_request(shortened, "polycast/history", {"pattern": "t", "from": since, "limit": 1})
    removed = {"first": error["first"], "next": first.sequence, "reason": "removed by retention"}
    assert (rows[0], rows[1]["offset"]) == ({"missing": removed}, first.sequence)


def test_the_earliest_message_is_no_removed_one(shortened: Broker) -> None:
    with subscribe(shortened, "t", since="earliest") as peer:
        assert read_messages(peer, 1)
