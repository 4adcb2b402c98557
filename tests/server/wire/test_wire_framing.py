"""Input may be split or joined at any byte."""

from __future__ import annotations

import random

import pytest

from kit.broker import Broker
from kit.flow import MIB, Reading, Sending
from kit.frames import pub, read_pubs
from kit.room import Room
from kit.wire import Peer

SIMPLEST_INPUT = (
    b"sub x\r\nhello\npub a 5 he\nlo\npub b 0\npub c 0 \r\npub d 00002 \r\n\r\nunsub x\n\npub \xff 1 x\n"
    b"pub e 6 pub f \nsub\npub g 1 \xff\n"
)
SIMPLEST_MEANT = (
    b"pub a 5 he\nlo\npub b 0 \npub c 0 \npub d 2 \r\n\npub e 6 pub f \npub g 1 \xff\n"
)  # fmt: skip
CONTROLLER_INPUT = b"a 1\r\nnothing\n b\na!b c\nb two words!\nc \n\xff x\nd \xff\r\r\n"
CONTROLLER_MEANT = b"a!1\nb!two words!\nc!\nd!\xff\r\n"


def send_in_bytes(peer: Peer, data: bytes) -> None:
    for value in data:
        peer.send(bytes([value]))


def send_in_pieces(peer: Peer, data: bytes, seed: int) -> None:
    cuts = random.Random(seed)
    while data:
        size = cuts.randint(1, 12)
        peer.send(data[:size])
        data = data[size:]


def test_simplest_whole_and_byte_by_byte(room: Room) -> None:
    subscriber = room.simplest(b"sub \n")
    for send in (Peer.send, send_in_bytes):
        send(room.connect("simplest"), SIMPLEST_INPUT)
        subscriber.expect(SIMPLEST_MEANT)


@pytest.mark.parametrize("seed", range(5))
def test_simplest_in_pieces(room: Room, seed: int) -> None:
    subscriber = room.simplest(b"sub \n")
    send_in_pieces(room.connect("simplest"), SIMPLEST_INPUT, seed)
    subscriber.expect(SIMPLEST_MEANT)


def test_a_controller_whole_and_byte_by_byte(room: Room) -> None:
    client = room.client(b"subscribe >\n")
    for send in (Peer.send, send_in_bytes):
        send(room.controller(), CONTROLLER_INPUT)
        client.expect(CONTROLLER_MEANT)


@pytest.mark.parametrize("seed", range(5))
def test_a_controller_in_pieces(room: Room, seed: int) -> None:
    client = room.client(b"subscribe >\n")
    send_in_pieces(room.controller(), CONTROLLER_INPUT, seed)
    client.expect(CONTROLLER_MEANT)


def test_a_client_byte_by_byte(room: Room) -> None:
    client = room.client()
    send_in_bytes(client, b"subscribe foo\r\nsubscribe bar.>\nunsubscribe all\n")
    room.send_as_client(client)
    room.send_as_controller(room.controller(), b"foo 1\nbar.x 2\nall 3\n")
    client.expect(b"foo!1\nbar.x!2\n")
    room.send_as_client(client)


def test_commands_take_effect_in_their_order(room: Room) -> None:
    """Commands in one write take effect one after the other; a publisher gets none of its own messages."""
    other = room.simplest(b"sub n\n")
    room.simplest(b"sub n\npub n 1 1\nunsub n\npub n 1 2\nsub n\n")
    other.expect(b"pub n 1 1\npub n 1 2\n")


def test_a_thousand_messages_in_one_write_keep_their_order(room: Room) -> None:
    subscriber = room.simplest(b"sub t\n")
    client = room.client(b"subscribe t.>\n")
    text = [(f"t.{number % 7}", b"%d" % number * (number % 5)) for number in range(1000)]
    room.simplest(b"".join(pub(*message) for message in text))
    subscriber.expect(b"".join(pub(*message) for message in text))
    client.expect(b"".join(b"%b!%b\n" % (name.encode(), data) for name, data in text))


@pytest.mark.parametrize("size", [65_535, 131_071, 131_072, 262_143, 262_144, 262_145, MIB, MIB + 1, 3 * MIB])
def test_payloads_around_the_sizes_of_buffers(room: Room, size: int) -> None:
    subscriber = room.simplest(b"sub \n")
    frames = pub("a", b"1") + pub("big", b"x" * size) + pub("b", b"2") + pub("big", b"y" * size) + pub("c", b"3")
    sending = Sending(room.connect("simplest"), frames)
    assert Reading(subscriber, len(frames)).finish() == frames
    sending.finish()


def test_a_large_payload_followed_by_crlf(room: Room) -> None:
    subscriber = room.simplest(b"sub \n")
    data = b"z" * 300_000
    publisher = room.connect("simplest")
    publisher.send(b"pub big 300000 " + data + b"\r")
    publisher.send(b"\npub after 1 x\n")
    subscriber.expect(pub("big", data) + pub("after", b"x"))


def test_the_largest_payload_is_accepted(room: Room) -> None:
    subscriber = room.simplest(b"sub \n")
    frames = pub("big", b"x" * 16 * MIB) + pub("after", b"1")
    sending = Sending(room.connect("simplest"), frames)
    assert Reading(subscriber, len(frames)).finish() == frames
    sending.finish()


def test_one_byte_more_is_refused_by_its_header_alone(broker: Broker, room: Room) -> None:
    witness = room.simplest(b"sub \n")
    publisher = room.connect("simplest")
    publisher.send(b"pub before 1 1\npub big 16777217 ")
    assert publisher.expect_closed() == b""
    room.simplest(pub("after", b"2"))
    witness.expect(pub("before", b"1") + pub("after", b"2"))
    assert "16,777,217 exceeds the limit of 16,777,216" in broker.wait_for_log("limits.payload_bytes")


def test_a_smaller_limit_is_exact() -> None:
    with Broker("--set=limits.payload_bytes=1000", "--set=limits.topic_bytes=20") as broker, Room(broker) as room:
        subscriber = room.simplest(b"sub n\n")
        room.simplest(pub("n" * 20, b"x" * 1000))
        subscriber.expect(pub("n" * 20, b"x" * 1000))
        for bad in (b"pub n 1001 ", pub("n" * 21, b"x")):
            peer = room.connect("simplest")
            peer.send(bad)
            assert peer.expect_closed() == b""


def test_many_publishers_at_once_do_not_mix_their_frames(room: Room) -> None:
    subscriber = room.simplest(b"sub from/\n")
    text = {number: [b"%d" % i + b"." * (i * 37 % 5000) for i in range(40)] for number in range(20)}
    streams = {
        number: b"".join(pub(f"from/{number}", data) for data in messages) for number, messages in text.items()
    }
    reading = Reading(subscriber, sum(map(len, streams.values())))
    sendings = [Sending(room.connect("simplest"), stream) for stream in streams.values()]
    for sending in sendings:
        sending.finish()
    received, rest = read_pubs(reading.finish())
    assert rest == b""
    for number, messages in text.items():
        assert [data for name, data in received if name == f"from/{number}"] == messages
