"""Acks of a broker with a log: their order, and that none is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.hermod import CLOSE, END, OK, START, expect_error
from kit.replay import Delivered, handshake, numbered, publish, read_messages, subscribe, total


@pytest.fixture(scope="module")
def logging_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("data")) as broker:
        yield broker


def test_acks_are_in_publish_order(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        good, bad = hermod.message("replies", b"good"), hermod.message("replies", b"bad", check="0" * 40)
        peer.send(good + bad + good + hermod.topics("nothing") + bad + hermod.count(2) + good * 2 + b"{oops}")
        peer.expect(OK)
        expect_error(peer, 422)
        peer.expect(OK)
        peer.expect(OK)
        expect_error(peer, 422)
        peer.expect(hermod.ok(2))
        expect_error(peer, 400)
        assert peer.expect_closed() == b""


def test_commands_after_close_are_ignored_and_those_before_are_acknowledged(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.message("close", b"x") * 100 + CLOSE + hermod.message("close", b"late"))
        assert peer.expect_closed() == OK * 100
    with subscribe(logging_broker, "close", since="earliest") as subscriber:
        assert [received.payload for received in read_messages(subscriber, 100)] == [b"x"] * 100
        hermod.expect_no_more(subscriber)


def test_a_half_closed_publisher_gets_all_its_acks(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.message("half", b"x") * 500 + START + hermod.message("half", b"y") * 3 + END)
        peer.shut()
        assert peer.expect_closed() == OK * 500 + hermod.ok(3)


def test_a_publisher_that_closes_inside_a_message_gets_the_earlier_acks(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.message("inside", b"x") * 10 + hermod.message("inside", b"y" * 100)[:-1])
        peer.shut()
        assert peer.expect_closed() == OK * 10


def test_a_refused_handshake_follows_the_pending_acks(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        ahead = handshake("owed", since={"owed": 1_000_000})
        peer.send(hermod.message("owed", b"x") * 3 + ahead + hermod.message("owed", b"late"))
        peer.expect(OK * 3)
        error = hermod.read_error(peer)
        assert error["code"] == 400
        assert "3" in str(error["message"]) and "1,000,000" in str(error["message"])
        assert peer.expect_closed() == b""


def test_too_many_subscriptions_close_a_connection_after_its_acks(tmp_path: Path) -> None:
    with Broker("--set=limits.subscriptions=2", data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(hermod.message("t", b"x") + hermod.topics("a", "b", "c", "d") + hermod.message("t", b"late"))
        peer.expect(OK)
        expect_error(peer, 413)
        assert peer.expect_closed() == b""
        assert total(broker, "log_next_offset") == 1


def test_batches_of_all_kinds_are_acknowledged_in_order(logging_broker: Broker) -> None:
    one = hermod.message("kinds", b"1")
    bad = hermod.message("kinds", b"bad", check="0" * 40)
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(
            hermod.count(0) + one + hermod.count(3) + one + bad + one + START + END + one
            + hermod.count(2, batch_id="kinds") + one * 2 + END
        )  # fmt: skip
        peer.expect(hermod.ok(0) + OK)
        expect_error(peer, 422, count=2)
        peer.expect(hermod.ok(0) + OK + hermod.ok(2) + hermod.ok(0))


def test_an_acknowledged_message_survives_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, numbered("kept", range(100)))
        broker.kill()
    with Broker(data=tmp_path) as broker, subscribe(broker, "kept", since="earliest") as subscriber:
        assert read_messages(subscriber, 100) == [Delivered("kept", n, b"%d" % n) for n in range(100)]


@pytest.mark.parametrize("delivery", ["live", "committed"])
def test_a_connection_that_publishes_and_subscribes(tmp_path: Path, delivery: str) -> None:
    """A connection gets its own messages before their acks, and both before the close that it requested."""
    with Broker(f"--set=log.delivery={delivery}", data=tmp_path) as broker:
        for number in range(20):
            with broker.connect("hermod.pub") as peer:
                peer.send(hermod.topics("own") + hermod.message("own", b"x") + CLOSE)
                assert peer.expect_closed() == OK + hermod.delivery("own", b"x", number) + OK


@pytest.mark.parametrize(
    ("sync", "delivery"),
    [("interval", "live"), ("never", "committed"), ("always", "live"), ("always", "committed")],
)
def test_every_durability_setting_acknowledges_and_delivers(tmp_path: Path, sync: str, delivery: str) -> None:
    flags = (f"--set=log.sync={sync}", "--set=log.sync_seconds=0.01", f"--set=log.delivery={delivery}")
    with Broker(*flags, data=tmp_path) as broker:
        with broker.connect("hermod.pub") as peer, subscribe(broker, "t") as live:
            publish(peer, numbered("t", range(1000)))
            assert [received.payload for received in read_messages(live, 1000)] == [b"%d" % n for n in range(1000)]
        with subscribe(broker, "t", since="earliest") as late:
            assert [received.sequence for received in read_messages(late, 1000)] == list(range(1000))
    with Broker(*flags, data=tmp_path) as broker, subscribe(broker, "t", since={"t": 999}) as late:
        assert read_messages(late, 1) == [Delivered("t", 999, b"999")]
