"""The dialect `hermod`, as publishers see it on the wire."""

from __future__ import annotations

import pytest

from kit import hermod
from kit.broker import Broker
from kit.flow import MIB, Reading, Sending
from kit.frames import pub
from kit.hermod import END, OK, START, expect_error, message
from kit.room import Room
from kit.wire import Peer

BAD = "0" * 40


@pytest.fixture
def publisher(room: Room) -> Peer:
    return room.connect("hermod.pub")


def subscribe(room: Room, *topics: str, **more: object) -> Peer:
    subscriber = room.connect("hermod.sub")
    subscriber.send(hermod.topics(*topics, **more))
    subscriber.expect(OK)
    return subscriber


# -- single messages -------------------------------------------------------------------------------------


def test_a_message_is_acknowledged_and_delivered(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub single\n")
    publisher.send(message("single", b"hello"))
    publisher.expect(OK)
    listener.expect(pub("single", b"hello"))


def test_a_message_without_subscribers_is_acknowledged_too(publisher: Peer) -> None:
    publisher.send(message("nobody", b"hello"))
    publisher.expect(OK)


def test_each_message_is_acknowledged(publisher: Peer) -> None:
    publisher.send(b"".join(message("each", b"%d" % number) for number in range(1000)))
    publisher.expect(OK * 1000)


def test_a_message_byte_by_byte(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub drip\n")
    for value in b"\n" + message("drip", b"hello", gap=b"\r\n") + message("drip", b"}"):
        publisher.send(bytes([value]))
    publisher.expect(OK * 2)
    listener.expect(pub("drip", b"hello") + pub("drip", b"}"))


@pytest.mark.parametrize("topic", ["a b", "a}b", '{"', "\\", "é€", "a!b", "%d", "polycast/x"])
def test_a_topic_may_have_any_name(room: Room, publisher: Peer, topic: str) -> None:
    subscriber = subscribe(room, topic, topic + "x")
    publisher.send(message(topic, b"1"))
    publisher.expect(OK)
    subscriber.expect(hermod.delivery(topic, b"1", 0))


@pytest.mark.parametrize("payload", [b"", b"\n", b"\r\n", b"\n\n", b"{}", b"\x00\xff", b"x" * 100_000])
def test_a_payload_is_delivered_byte_for_byte(room: Room, publisher: Peer, payload: bytes) -> None:
    listener = room.simplest(b"sub bytes\n")
    for gap in (b"", b"\n", b"\r\n"):
        publisher.send(message("bytes", payload, gap=gap))
        publisher.expect(OK)
        listener.expect(pub("bytes", payload))


def test_a_wrong_checksum_costs_one_message(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub sum\n")
    publisher.send(message("sum", b"1") + message("sum", b"2", BAD) + message("sum", b"3"))
    publisher.expect(OK)
    expect_error(publisher, 422)
    publisher.expect(OK)
    listener.expect(pub("sum", b"1") + pub("sum", b"3"))
    publisher.send(message("sum", b"4", ""))
    publisher.expect(OK)


def test_a_wrong_checksum_of_a_payload_that_begins_with_lf_is_reported_at_the_next_byte(
    room: Room, publisher: Peer
) -> None:
    publisher.send(message("doubt", b"\nx", BAD))
    publisher.send(b"\n")
    expect_error(publisher, 422)
    publisher.send(message("doubt", b"\nx", BAD))
    publisher.shut()
    expect_error(publisher, 422)
    assert publisher.expect_closed() == b""


def test_a_checksum_can_be_required() -> None:
    with Broker("--set=hermod.require_checksum=true") as broker, Room(broker) as room:
        listener, publisher = room.simplest(b"sub a\n"), room.connect("hermod.pub")
        publisher.send(message("a", b"1", "") + message("a", b"2"))
        expect_error(publisher, 422)
        publisher.expect(OK)
        listener.expect(pub("a", b"2"))


# -- batches ---------------------------------------------------------------------------------------------


def test_a_counted_batch_has_one_reply_at_its_end(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub counted\n")
    publisher.send(hermod.count(3) + message("counted/a", b"1") + message("counted/b", b"2"))
    listener.expect(pub("counted/a", b"1") + pub("counted/b", b"2"))
    publisher.send(message("counted/a", b"3"))
    publisher.expect(hermod.ok(3))
    listener.expect(pub("counted/a", b"3"))
    publisher.send(hermod.count(0))
    publisher.expect(hermod.ok(0))


def test_a_stream_has_one_reply_at_its_end(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub stream\n")
    publisher.send(START + message("stream", b"1") + message("stream", b"2"))
    listener.expect(pub("stream", b"1") + pub("stream", b"2"))
    publisher.send(END + END + message("stream", b"3"))
    publisher.expect(hermod.ok(2) + hermod.ok(0) + OK)


def test_a_bad_message_in_a_batch_is_reported_at_its_end(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub mixed\n")
    publisher.send(hermod.count(3) + message("mixed", b"1") + message("mixed", b"2", BAD) + message("mixed", b"3"))
    expect_error(publisher, 422, count=2)
    listener.expect(pub("mixed", b"1") + pub("mixed", b"3"))
    publisher.send(message("mixed", b"4"))
    publisher.expect(OK)


@pytest.mark.parametrize("second", [START, hermod.count(1), hermod.count(0), b'{"batch_type": "End"}'])
def test_a_batch_header_inside_a_counted_batch_costs_the_connection(publisher: Peer, second: bytes) -> None:
    publisher.send(hermod.count(2) + message("inside", b"1") + second)
    expect_error(publisher, 409, count=1)
    assert publisher.expect_closed() == b""


@pytest.mark.parametrize("second", [START, hermod.count(1)])
def test_a_batch_header_inside_a_stream_costs_the_connection(publisher: Peer, second: bytes) -> None:
    publisher.send(START + second)
    expect_error(publisher, 409, count=0)
    assert publisher.expect_closed() == b""


def test_a_batch_with_an_id_is_refused(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub once\n")
    publisher.send(hermod.count(2, batch_id="x") + message("once", b"1") * 2 + message("once", b"2"))
    error = hermod.read_error(publisher)
    assert (error["code"], error["count"]) == (501, 0)
    assert "batch_id" in str(error["message"])
    publisher.expect(OK)
    listener.expect(pub("once", b"2"))


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"hello\n", 400),
        (b"{}", 400),
        (b'{"topic": "a", "payload_size": 1}x', 400),
        (b'{"topic": "a", "payload_size": -1, "checksum": ""}x', 400),
        (b'{"topic": "a", "payload_size": 1.0, "checksum": ""}x', 400),
        (b'{"topic": "\xff", "payload_size": 1, "checksum": ""}x', 400),
        (b'{"topic": "\\ud800", "payload_size": 1, "checksum": ""}x', 400),
        (b'{"topics": "a"}', 400),
        (b'{"batch_type": "count", "count": 1}', 400),
        (b'{"status": "HELLO"}', 400),
        (b"{" * 65_536 + b" ", 413),
        (b'{"topic": "' + b"t" * 1025 + b'", "payload_size": 1, "checksum": ""}', 413),
        (b'{"topic": "a", "payload_size": 16777217, "checksum": ""}', 413),
        (b'{"topics": ["' + b"t" * 1025 + b'"]}', 413),
    ],
)
@pytest.mark.parametrize("listener", ["hermod.pub", "hermod.sub"])
def test_a_bad_header_closes_the_connection_with_an_error(
    room: Room, listener: str, bad: bytes, code: int
) -> None:
    witness = room.simplest(b"sub bad\n")
    peer = room.connect(listener)
    peer.send(message("bad", b"before") + bad)
    peer.expect(OK)
    expect_error(peer, code)
    assert peer.expect_closed() == b""
    room.simplest(pub("bad", b"after"))
    witness.expect(pub("bad", b"before") + pub("bad", b"after"))


def test_the_log_has_the_reason_of_a_close(broker: Broker, publisher: Peer) -> None:
    publisher.send(b'{"topic": "a", "payload_size": "many", "checksum": ""}')
    expect_error(publisher, 400)
    port = publisher.socket.getsockname()[1]
    assert f":{port}: closed: payload_size is 'many'" in broker.wait_for_log(f":{port}: closed")


def test_a_message_that_is_never_finished_is_not_published(room: Room, publisher: Peer) -> None:
    listener = room.simplest(b"sub half\n")
    publisher.send(message("half", b"1") + message("half", b"2")[:-1])
    publisher.shut()
    assert publisher.expect_closed() == OK
    room.simplest(pub("half", b"3"))
    listener.expect(pub("half", b"1") + pub("half", b"3"))


@pytest.mark.parametrize("size", [65_535, 131_072, 262_144, MIB + 1, 16 * MIB])
def test_large_payloads(room: Room, size: int) -> None:
    listener, subscriber = room.simplest(b"sub large\n"), subscribe(room, f"large{size}")
    payload = bytes(range(256)) * (size // 256 + 1)
    frames = [message(f"large{size}", payload[:size], gap=gap) for gap in (b"", b"\n")]
    publisher = room.connect("hermod.pub")
    sending = Sending(publisher, b"".join(frames))
    expected = pub(f"large{size}", payload[:size]) * 2
    reading = Reading(listener, len(expected))
    received = b"".join(hermod.delivery(f"large{size}", payload[:size], number) for number in range(2))
    assert Reading(subscriber, len(received)).finish() == received
    assert reading.finish() == expected
    sending.finish()
    publisher.expect(OK * 2)


def test_a_stopping_broker_sends_503() -> None:
    with Broker() as broker, Room(broker) as room:
        publisher, subscriber = room.connect("hermod.pub"), subscribe(room, "a")
        publisher.send(hermod.count(2) + message("a", b"1"))
        subscriber.expect(hermod.delivery("a", b"1", 0))
        assert broker.stop() == 0
        expect_error(publisher, 503, count=1)
        expect_error(subscriber, 503)


# -- either port -----------------------------------------------------------------------------------------


def test_publishers_and_subscribers_may_use_either_port(room: Room) -> None:
    subscriber, publisher = room.connect("hermod.pub"), room.connect("hermod.sub")
    subscriber.send(hermod.topics("either"))
    subscriber.expect(OK)
    publisher.send(message("either", b"x"))
    publisher.expect(OK)
    subscriber.expect(hermod.delivery("either", b"x", 0))


def test_one_connection_may_do_both(room: Room) -> None:
    both = room.connect("hermod.pub")
    both.send(hermod.topics("both") + message("both", b"x") + OK + message("both", b"y"))
    both.shut()
    received = both.expect_closed()
    assert received.startswith(OK)
    assert received.count(OK) == 3
    assert received.replace(OK, b"") == hermod.delivery("both", b"x", 0) + hermod.delivery("both", b"y", 1)


# -- sequences -------------------------------------------------------------------------------------------


def test_sequences_are_per_topic_across_publishers(room: Room, publisher: Peer) -> None:
    publisher.send(message("seq/a", b"unheard") * 3)
    publisher.expect(OK * 3)
    subscriber = subscribe(room, "seq/a", "seq/b")
    for number in range(5):
        room.simplest(pub("seq/a", b"s"))
        room.send_as_controller(room.controller(), b"seq/b f\n")
        room.connect("hermod.pub").send(message("seq/a", b"h"))
        subscriber.expect(hermod.delivery("seq/a", b"s", 3 + 2 * number))
        subscriber.expect(hermod.delivery("seq/b", b"f", number))
        subscriber.expect(hermod.delivery("seq/a", b"h", 4 + 2 * number))


def test_a_refused_message_takes_no_sequence(room: Room, publisher: Peer) -> None:
    subscriber = subscribe(room, "kept")
    publisher.send(message("kept", b"1") + message("kept", b"2", BAD) + message("kept", b"3"))
    subscriber.expect(hermod.delivery("kept", b"1", 0) + hermod.delivery("kept", b"3", 1))
