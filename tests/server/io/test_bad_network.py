"""Peers behind a network that cuts, stalls and drips."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from kit.broker import Broker
from kit.flow import MIB, Reading, Sending
from kit.frames import pub
from kit.proxy import Proxy
from kit.room import GREETING, Room
from kit.wire import Peer

RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with Proxy(broker.ports["simplest"]) as between:
        yield between


def test_a_publisher_whose_bytes_drip(room: Room, proxy: Proxy) -> None:
    proxy.drip()
    subscriber = room.simplest(b"sub \n")
    frames = pub("a", b"1" * 500) + b"nonsense\n" + pub("b") + pub("c", b"\n\r\n" * 100)
    with Peer(proxy.port) as publisher:
        publisher.send(frames)
        subscriber.expect(frames.replace(b"nonsense\n", b""))


def test_a_subscriber_whose_bytes_drip(room: Room, proxy: Proxy) -> None:
    proxy.drip()
    with Peer(proxy.port) as subscriber:
        room.send_commands(subscriber, b"sub a\n")
        room.simplest(pub("a", b"x" * 2000) + pub("ab", b"y"))
        subscriber.expect(pub("a", b"x" * 2000) + pub("ab", b"y"))


def test_a_truncated_message_is_not_delivered(room: Room, proxy: Proxy) -> None:
    subscriber = room.simplest(b"sub \n")
    with Peer(proxy.port) as publisher:
        publisher.send(pub("whole", b"1") + b"pub half 10 12345")
        proxy.wait_until_carried(b"pub half 10 12345")
        subscriber.expect(pub("whole", b"1"))
        proxy.cut()
        publisher.expect_closed()
    room.expect_quiet(subscriber)


def test_a_large_truncated_message_is_not_delivered(room: Room, proxy: Proxy) -> None:
    subscriber = room.simplest(b"sub \n")
    with Peer(proxy.port) as publisher:
        publisher.send(b"pub half 4000000 " + b"x" * 2_000_000 + b"the end")
        proxy.wait_until_carried(b"the end")
        proxy.cut()
        publisher.expect_closed()
    room.expect_quiet(subscriber)


def test_a_stall_delays_and_loses_nothing(room: Room, proxy: Proxy) -> None:
    subscriber = room.simplest(b"sub \n")
    with Peer(proxy.port) as publisher:
        publisher.send(b"pub a 10 12345")
        proxy.wait_until_carried(b"12345")
        proxy.stall()
        publisher.send(b"67890\n" + pub("b", b"2"))
        room.expect_quiet(subscriber)
        proxy.flow()
        subscriber.expect(pub("a", b"1234567890") + pub("b", b"2"))


def test_a_stalled_subscriber_delays_no_other(room: Room, proxy: Proxy) -> None:
    witness = room.simplest(b"sub \n")
    frames = pub("a", b"x" * MIB) * 8
    with Peer(proxy.port) as subscriber:
        room.send_commands(subscriber, b"sub \n")
        proxy.stall()
        sending = Sending(room.connect("simplest"), frames)
        assert Reading(witness, len(frames)).finish() == frames
        sending.finish()
        proxy.flow()
        assert Reading(subscriber, len(frames)).finish() == frames


def test_a_subscriber_that_is_cut_off_does_not_affect_the_others(room: Room, proxy: Proxy) -> None:
    witness = room.simplest(b"sub \n")
    publisher = room.simplest()
    with Peer(proxy.port) as subscriber:
        room.send_commands(subscriber, b"sub \n")
        proxy.stall()
        room.send_commands(publisher, pub("a", b"x" * MIB))
        proxy.cut()
        subscriber.expect_closed()
    room.send_commands(publisher, pub("b", b"2"))
    witness.expect(pub("a", b"x" * MIB) + pub("b", b"2"))


def test_peers_that_reset_their_connections(room: Room) -> None:
    witness = room.simplest(b"sub \n")
    publisher = room.simplest()
    for number in range(50):
        for listener in ("simplest", "fanout.client", "fanout.controller"):
            peer = room.connect(listener)
            peer.send(b"sub\nsubscribe\n")
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            peer.close()
        room.send_commands(publisher, pub("n", b"%d" % number))
        witness.expect(pub("n", b"%d" % number))


def test_a_peer_that_half_closes_receives_no_more_messages(room: Room) -> None:
    subscriber = room.simplest(b"sub \n")
    room.simplest(pub("a", b"1"))
    subscriber.shut()
    assert subscriber.expect_closed() == pub("a", b"1")


def test_messages_sent_before_a_disconnect_are_delivered(room: Room) -> None:
    witness = room.simplest(b"sub \n")
    for number in range(20):
        peer = room.connect("simplest")
        peer.send(pub("bye", b"%d" % number) * 100)
        peer.close()
        witness.expect(pub("bye", b"%d" % number) * 100)


def test_garbage_closes_at_most_its_own_connection(broker: Broker, room: Room) -> None:
    witness = room.client()
    for listener in ("simplest", "fanout.client", "fanout.controller"):
        for garbage in (
            bytes(range(256)) * 300,
            b"\x16\x03\x01\x02\x00\x01" * 99,
            b"\n" * 5000,
            b"\r" * 99,
            b"\x00" * 70_000,
        ):
            with broker.connect(listener) as peer:
                peer.send(garbage)
                peer.shut()
                assert peer.expect_closed() in (b"", GREETING)
    room.send_as_controller(room.controller(), b"all fine\n")
    witness.expect(b"all!fine\n")
