"""Offsets of the whole log: in the headers of messages, as a start position, and of another log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.hermod import expect_error, expect_no_more, read_error
from kit.replay import (
    Delivered,
    numbered,
    publish,
    read_messages,
    subscribe,
    subscribe_placed,
    total,
    wait_for_total,
)
from kit.wire import wait_for

COUNT = 600
SMALL = "--set=log.segment_bytes=65536"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Its log has 600 messages on three topics in turn, in sealed segments and hot ones."""
    with Broker(SMALL, data=tmp_path_factory.mktemp("data")) as running:
        with running.connect("hermod.pub") as peer:
            for begin in range(0, COUNT, 50):
                publish(peer, ((f"t.{n % 3}", b"%d" % n + b"." * 400) for n in range(begin, begin + 50)))
        wait_for(lambda: total(running, "log_segments_sealed_total") > 1, "sealed segments")
        yield running


def numbers(received: list[Delivered]) -> list[int]:
    return [int(each.payload.strip(b".")) for each in received]


@pytest.mark.parametrize("offset", [0, 1, 217, COUNT - 1, COUNT])
def test_replay_starts_at_the_offset_for_all_patterns(broker: Broker, offset: int) -> None:
    peer, reply = subscribe_placed(broker, "t.0", patterns=["~.1"], **{"from": f"@{offset}"})
    wanted = [n for n in range(offset, COUNT) if n % 3 < 2]
    with peer:
        received = read_messages(peer, len(wanted))
        assert numbers(received) == [each.offset for each in received] == wanted
        assert reply["next"] == COUNT and len(reply["log"]) == 16
        wait_for_total(broker, "replays_open", 0)
        expect_no_more(peer)


def test_the_times_are_those_of_the_log(broker: Broker) -> None:
    peer, _ = subscribe_placed(broker, patterns=[">"], **{"from": "@0"})
    with peer:
        micros = [each.micros or 0 for each in read_messages(peer, COUNT)]
    assert micros == sorted(micros) and len(set(micros)) > 1
    with broker.connect("hermod.sub") as peer:
        peer.send(b'{"request": "polycast/history", "id": 1, "body": {"pattern": ">", "from": "@0"}}')
        peer.read_until(b"}")
        rows = json.loads(peer.read_until(b"]\n"))
    times = [datetime.fromisoformat(row["time"]) for row in rows]
    assert [round(time.timestamp() * 1e6) for time in times] == micros[:100]


def test_an_offset_past_the_end(broker: Broker) -> None:
    with broker.connect("hermod.sub") as peer:
        peer.send(hermod.topics("t.0", **{"from": f"@{COUNT + 1}"}))
        error = read_error(peer)
        assert error["code"] == 400
        assert error["message"] == (
            f"the log has come to offset {COUNT}, there is no {COUNT + 1} yet; is it the offset of another log?"
        )
        peer.expect_closed()


def test_the_offsets_of_another_log(broker: Broker) -> None:
    peer, reply = subscribe_placed(broker, "t.0", **{"from": f"@{COUNT}"})
    with peer:
        peer.send(hermod.topics("t.1", log=reply["log"], **{"from": "@597"}))
        peer.read_until(b"\n")
        assert numbers(read_messages(peer, 1)) == [598]
        peer.send(hermod.topics("t.1", log="0" * 16, **{"from": "@5"}))
        error = read_error(peer)
        assert error["code"] == 412 and reply["log"] in str(error["message"])
        peer.expect_closed()


def test_committed_delivery_is_a_matter_of_the_first_subscription(broker: Broker) -> None:
    with subscribe(broker, "quiet") as peer:
        peer.send(hermod.topics("t.1", delivery="committed"))
        expect_error(peer, 400)
        peer.expect_closed()


def test_a_log_keeps_its_id_over_a_restart_and_no_two_have_the_same(tmp_path: Path) -> None:
    ids: list[str] = []
    for folder in ("one", "one", "two"):
        with Broker(data=tmp_path / folder, listen=("hermod.pub", "hermod.sub")) as running:
            peer, reply = subscribe_placed(running, "a")
            with peer, running.connect("hermod.pub") as publisher:
                publisher.send(b'{"batch_type": "End", "offsets": true}')
                greeting = json.loads(publisher.read_until(b"\n"))
            assert greeting == {"status": "OK", "count": 0, "log": reply["log"], "batch_ids": 100_000}
            ids.append(reply["log"])
    assert ids[0] == ids[1] != ids[2]


def test_what_a_committed_subscriber_got_survives_a_crash(tmp_path: Path) -> None:
    """Beside subscribers that get messages at once."""
    with (
        Broker(data=tmp_path) as running,
        subscribe(running, "t") as live,
        subscribe(running, "t", delivery="committed") as careful,
        subscribe(running, "t", since="earliest", delivery="committed") as replaying,
        running.connect("simplest") as peer,
    ):
        peer.send(b"".join(b"pub t 4 %04d\n" % number for number in range(2000)))
        read_messages(live, 2000)
        received = [read_messages(each, 500) for each in (careful, replaying)]
        running.kill()
        rest = [each.expect_closed().count(b"topic") for each in (careful, replaying)]
    with Broker(data=tmp_path) as running, subscribe(running, "t", since="earliest") as subscriber:
        replayed = read_messages(subscriber, 500 + max(rest))
    assert received == [replayed[:500]] * 2
    assert replayed[:500] == [Delivered("t", n, b"%04d" % n) for n in range(500)]


def test_committed_subscribers_get_everything_that_is_durable_in_order(tmp_path: Path) -> None:
    with (
        Broker(data=tmp_path) as running,
        subscribe(running, "t", delivery="committed") as careful,
        running.connect("hermod.pub") as peer,
    ):
        publish(peer, numbered("t", range(1000)))
        with subscribe(running, "t", since="@500", delivery="committed") as later:
            publish(peer, numbered("t", range(1000, 2000)))
            wanted = [Delivered("t", n, b"%d" % n) for n in range(2000)]
            assert read_messages(careful, 2000) == wanted
            assert read_messages(later, 1500) == wanted[500:]
            for each in (careful, later):
                expect_no_more(each)
