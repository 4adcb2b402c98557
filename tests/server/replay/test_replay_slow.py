"""Replays to subscribers that do not read: other connections are not affected, and no resources leak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.flow import MIB, resident_bytes
from kit.replay import handshake, numbered, publish, read_messages, subscribe, total, wait_for_total
from kit.wire import GUARD_SECONDS, Peer

MESSAGES = 6000
SIZE = 10_000
"""Far more bytes than a socket can buffer."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a long log."""
    data = tmp_path_factory.mktemp("data")
    with Broker(data=data, fresh=True) as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, numbered("past", range(MESSAGES), SIZE))
        yield broker


def begin(broker: Broker, stack: ExitStack, **more: object) -> Peer:
    """A replay to a subscriber that does not read."""
    peer = stack.enter_context(broker.connect("hermod.sub", receive_bytes=4096))
    peer.send(handshake("past", since="earliest", **more))
    peer.expect(hermod.OK)
    return peer


def test_live_delivery_does_not_wait_for_stalled_replays(long: Broker) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            begin(long, stack)
        wait_for_total(long, "replays_open", 30)
        publisher = stack.enter_context(long.connect("hermod.pub"))
        live = stack.enter_context(subscribe(long, "live"))
        for number in range(200):
            publish(publisher, [("live", b"%d" % number)])
            [received] = read_messages(live, 1)
            assert received.payload == b"%d" % number
        assert total(long, "replays_open") == 30
    wait_for_total(long, "replays_open", 0)


def test_stalled_replays_use_little_memory(long: Broker) -> None:
    with ExitStack() as stack:
        first = begin(long, stack)
        assert len(read_messages(first, 1000)) == 1000
        before = resident_bytes(long.process.pid)
        for _ in range(60):
            begin(long, stack)
        wait_for_total(long, "replays_open", 61)
        received = read_messages(first, MESSAGES - 1000)
        assert [each.sequence for each in received] == list(range(1000, MESSAGES))
        assert resident_bytes(long.process.pid) - before < 61 * 8 * MIB
    wait_for_total(long, "replays_open", 0)


@pytest.mark.parametrize("ending", ["close", "CLOSE", "reset", "half"])
def test_a_replay_that_is_cancelled_leaves_nothing_behind(long: Broker, ending: str) -> None:
    with ExitStack() as stack:
        peer = begin(long, stack)
        read_messages(peer, 10)
        wait_for_total(long, "replays_open", 1)
        if ending == "close":
            peer.close()
        elif ending == "CLOSE":
            peer.send(hermod.CLOSE)
        elif ending == "half":
            peer.shut()
        else:
            peer.send(b"?")
        wait_for_total(long, "replays_open", 0)


def test_a_replay_that_is_cancelled_before_its_first_read(long: Broker) -> None:
    for _ in range(20):
        with long.connect("hermod.sub") as peer:
            peer.send(handshake("past", since="earliest") + hermod.CLOSE)
    wait_for_total(long, "replays_open", 0)


def test_a_window_that_is_never_acknowledged(long: Broker) -> None:
    with ExitStack() as stack:
        peer = begin(long, stack, window=2)
        assert len(read_messages(peer, 2)) == 2
        wait_for_total(long, "replays_open", 1)  # the last ones of the test before may end only now
        peer.close()
        wait_for_total(long, "replays_open", 0)


def test_a_stop_in_the_middle(tmp_path: Path) -> None:
    with Broker("--set=limits.shutdown_seconds=0.1", data=tmp_path) as broker, ExitStack() as stack:
        publisher = stack.enter_context(broker.connect("hermod.pub"))
        publish(publisher, numbered("past", range(MESSAGES), SIZE))
        for _ in range(5):
            begin(broker, stack)
        wait_for_total(broker, "replays_open", 5)
        for _ in range(20):  # these replays have hardly started
            stack.enter_context(broker.connect("hermod.sub")).send(handshake("past", since={"past": 5000}))
        assert broker.stop() == 0


def test_a_handshake_with_thousands_of_sequences(tmp_path: Path) -> None:
    """Like a reconnecting subscriber that has a position for every topic."""
    topics = [f"topic/{number}" for number in range(2000)]
    with Broker("--set=log.segment_bytes=65536", data=tmp_path) as broker, ExitStack() as stack:
        publisher = stack.enter_context(broker.connect("hermod.pub"))
        for turn in range(5):
            publish(publisher, [(topic, b"%d" % turn) for topic in topics])
        starts = {topic: number % 6 for number, topic in enumerate(topics)}
        subscriber = stack.enter_context(broker.connect("hermod.sub"))
        subscriber.socket.settimeout(GUARD_SECONDS)
        subscriber.send(hermod.topics(*topics, **{"from": {"topics": starts}}))
        subscriber.expect(hermod.OK)
        wanted = {(topic, turn) for topic, start in starts.items() for turn in range(start, 5)}
        received = read_messages(subscriber, len(wanted))
        assert {(each.topic, each.sequence) for each in received} == wanted
        wait_for_total(broker, "replays_open", 0)
        hermod.expect_no_more(subscriber)
