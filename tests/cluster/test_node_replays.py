"""Subscribers that a node serves from its own log: spilled ones, `?replay=last`, and large commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest

from cluster.place import Place, send, wait_level
from kit.broker import Broker
from kit.flow import Reading
from kit.replay import total, wait_for_total
from kit.spilled import SMALL_QUEUE, TRIES, NumberedPublisher, expect_all
from kit.staged import commit, numbered, stage
from kit.subscribers import SUBSCRIBERS, SubscriberKind, send_request
from kit.wire import Peer

SPILL = "?policy=spill"
LAST = "?replay=last"
SMALL_SEGMENTS = "--set=log.segment_bytes=1000000"
LARGE_STREAM = "--set=cluster.max_bytes=256MiB"
"""No node is so far behind that messages are removed from the stream before it has read them."""
ROWS, SIZE = 6000, 1000


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def subscribe_all(node: Broker, topic: str, peers: ExitStack, receive_bytes: int = 0) -> dict[str, Peer]:
    """One subscriber of each dialect."""
    return {name: peers.enter_context(kind.open(node, topic, receive_bytes)) for name, kind in SUBSCRIBERS.items()}


# -- spill -----------------------------------------------------------------------------------------------


def test_slow_subscribers_of_a_node_miss_nothing(place: Place, peers: ExitStack) -> None:
    """Publishers are at both nodes, in turn; the subscribers read sealed and hot segments of one of them."""
    flags = (SMALL_QUEUE, SMALL_SEGMENTS, LARGE_STREAM)
    with place.node("a", *flags, options=SPILL) as here, place.node("b", *flags, options=SPILL) as other:
        slow = subscribe_all(here, "flow", peers, 4096)
        publisher = peers.enter_context(NumberedPublisher(here, "flow", other))
        publisher.publish_until_spilled(len(slow))
        assert total(here, "replays_open") == len(slow)
        assert total(other, "subscribers_spilled_total") == 0
        while total(here, "log_segments_sealed_total") < 3:
            assert publisher.count < TRIES
            publisher.publish(20)
        for name, peer in slow.items():
            expect_all(SUBSCRIBERS[name], peer, range(publisher.count))
        wait_for_total(here, "replays_open", 0)
        before = publisher.count
        publisher.publish(2)
        publisher.publish(2)
        for name, peer in slow.items():
            expect_all(SUBSCRIBERS[name], peer, range(before, publisher.count))
            assert peer.read == b""
        assert total(here, "replays_open") == 0, "a small burst is delivered live"
        assert total(here, "subscribers_spilled_total") == len(slow)


# -- large commits ---------------------------------------------------------------------------------------


def test_a_large_commit_of_another_node_is_delivered_from_the_log(place: Place, peers: ExitStack) -> None:
    flags = ("--set=limits.queue_bytes=262144", LARGE_STREAM)
    rows = numbered("flow", ROWS, SIZE)
    payloads = [b"before", *[payload for _, payload in rows], b"behind", b"here"]
    with place.node("a", *flags) as here, place.node("b", *flags) as other:
        readings = []
        for name, peer in subscribe_all(here, "flow", peers).items():
            expected = b"".join(SUBSCRIBERS[name].frame("flow", *each) for each in enumerate(payloads))
            readings.append((Reading(peer, len(expected)), expected))
        send(other, "flow", b"before")
        with other.connect("hermod.pub") as peer:
            stage(peer, "x", "s", rows)
            commit(peer, "x", "s", rows=ROWS)
        send(other, "flow", b"behind")
        send(here, "flow", b"here")
        for reading, expected in readings:
            assert reading.finish() == expected


# -- the last message of each topic ----------------------------------------------------------------------


def expect(kind: SubscriberKind, peer: Peer, topic: str, *messages: tuple[int, bytes]) -> None:
    peer.expect(b"".join(kind.frame(topic, *message) for message in messages))


def test_the_last_message_is_that_of_any_node_and_live_ones_follow(place: Place, peers: ExitStack) -> None:
    with place.node("a", options=LAST) as first, place.node("b", options=LAST) as second:
        send(first, "t", b"first")
        send(second, "t", b"second")
        wait_level(first, 2)
        opened = [subscribe_all(node, "t", peers) for node in (first, second)]
        for subscribers in opened:
            for name, peer in subscribers.items():
                expect(SUBSCRIBERS[name], peer, "t", (1, b"second"))
        send(first, "t", b"third")
        send(second, "t", b"fourth")
        for subscribers in opened:
            for name, peer in subscribers.items():
                expect(SUBSCRIBERS[name], peer, "t", (2, b"third"), (3, b"fourth"))
                assert peer.read == b""


def test_the_last_messages_are_in_the_same_order_at_all_nodes(place: Place) -> None:
    kind = SUBSCRIBERS["simplest"]
    with place.node("a", options=LAST) as first, place.node("b", options=LAST) as second:
        for node, topic, payload in (
            (first, "topic/b", b"1"), (second, "topic/a", b"2"), (second, "topic/b", b"3"),
            (first, "topic/c", b"4"), (second, "topic/a", b"5"),
        ):  # fmt: skip
            send(node, topic, payload)
        wait_level(first, 2)
        for node in (first, second):
            with kind.open(node, "topic", 0) as peer:
                for topic, payload in (("topic/b", b"3"), ("topic/c", b"4"), ("topic/a", b"5")):
                    expect(kind, peer, topic, (0, payload))


@pytest.mark.parametrize("how", ["restarted", "killed", "from the stream", "copied"])
def test_the_last_message_at_a_node_that_starts(place: Place, peers: ExitStack, how: str) -> None:
    """It may lie far back, in a sealed segment, and not be in the stream any more."""
    small = "--set=log.segment_bytes=65536"
    with place.node("a", small) as first:
        if how in ("restarted", "killed"):
            with place.node("b", small) as second:
                fill(first)
                while total(second, "log_segments_sealed_total") < 4:
                    send(first, "often", bytes(30_000))
                    wait_level(first, 2)
                if how == "killed":
                    second.kill()
        else:
            fill(first)
        if how == "copied":
            for number in range(8):
                send(first, "often", Random(number).randbytes(1_000_000))
            assert send_request(first, "polycast/cluster")["stream"]["first"] > 1
        send(first, "soon", b"0")
        with place.node("b", small, options=LAST) as second:
            for name, peer in subscribe_all(second, "rare", peers).items():
                expect(SUBSCRIBERS[name], peer, "rare", (1, b"long ago"))
            for name in ("simplest", "fanout", "hermod", "ubre"):
                peer = peers.enter_context(SUBSCRIBERS[name].open(second, "soon", 0))
                expect(SUBSCRIBERS[name], peer, "soon", (0, b"0"))


def fill(node: Broker) -> None:
    send(node, "rare", b"longer ago", b"long ago")
    for begin in range(0, 1000, 100):
        send(node, "often", *[b"%d" % number + b"." * 500 for number in range(begin, begin + 100)])
