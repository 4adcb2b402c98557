"""Refusals and limits of `hermod`: errors and counters on the wire."""

from __future__ import annotations

import pytest

from kit import hermod
from kit.broker import Broker
from kit.frames import pub
from kit.hermod import END, OK, START, expect_error, message
from kit.room import Room
from kit.wire import Peer

BAD = "0" * 40


@pytest.fixture
def publisher(room: Room) -> Peer:
    return room.connect("hermod.pub")


def test_what_is_refused_is_counted() -> None:
    with Broker("--set=hermod.require_checksum=true") as broker, Room(broker) as room:
        publisher, subscriber = room.connect("hermod.pub"), room.connect("hermod.sub")
        publisher.send(
            message("a", b"1", BAD) + hermod.count(3) + message("a", b"2", BAD) * 2 + message("a", b"3")
        )
        publisher.send(START + message("a", b"4", "") + END + hermod.count(0, batch_id="x"))
        for code in (422, 422, 422, 501):
            assert hermod.read_error(publisher)["code"] == code
        subscriber.send(b'{"status": "ERROR"}' * 2 + hermod.topics("a", **{"from": "earliest"}))
        expect_error(subscriber, 501)
        broker.stop()
        [publishers] = [line for line in broker.log().splitlines() if " hermod.pub:" in line]
        [subscribers] = [line for line in broker.log().splitlines() if " hermod.sub:" in line]
        assert "refused 3 (checksum does not fit)" in publishers
        assert "refused 1 (checksum required)" in publishers
        assert "refused 1 (batch_id needs the log)" in publishers
        assert "refused 1 (from needs the log)" in subscribers
        assert "refused 2 (ERROR of a client)" in subscribers


def test_a_count_that_no_machine_has(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub huge\n")
    publisher.send(hermod.count(2**63) + message("huge", b"1") + END)
    expect_error(publisher, 409, count=1)
    assert publisher.expect_closed() == b""
    listener.expect(pub("huge", b"1"))


def test_keys_of_other_kinds_do_not_decide(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub kind\n")
    publisher.send(b'{"topic": "kind", "payload_size": 1, "checksum": "", "status": "CLOSE"}a')
    publisher.expect(OK)
    listener.expect(pub("kind", b"a"))
    publisher.send(b'{"topics": ["kind"], "status": "CLOSE"}')
    publisher.expect(OK)
    publisher.send(hermod.acknowledgement("kind", 3) + message("kind", b"b"))
    publisher.expect(hermod.delivery("kind", b"b", 1) + OK)


def test_the_error_for_a_long_header_contains_its_size(publisher: Peer) -> None:
    begun = b'{"topic": "a", "payload_size": 1, "checksum": "", "x": "'
    publisher.send(begun + b"x" * (65_537 - len(begun) - 2) + b'"}' + b"x")
    words = str(hermod.read_error(publisher)["message"])
    assert words.startswith("a header of 65,537 exceeds the limit of 65,536")
