"""From replay to live under load: no gap, no repeat, one order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.hermod import expect_no_more
from kit.replay import Delivered, handshake, numbered, publish, read_messages, subscribe, total, wait_for_total
from kit.wire import GUARD_SECONDS, wait_for

EACH = 8_000
TOPICS = ("x", "y")
SMALL = "--set=log.segment_bytes=262144"
FLAGS = {
    "live": (SMALL, "--set=log.seal_share=1"),
    "live, not sealed": ("--set=log.seal=false",),
    "committed": ("--set=log.delivery=committed", SMALL, "--set=log.seal_share=1"),
}


class Publishing:
    """One publisher thread per topic."""

    def __init__(self, broker: Broker, size: int = 60) -> None:
        self._threads = [
            threading.Thread(target=self._publish, args=(broker, topic, size), daemon=True) for topic in TOPICS
        ]
        self.done = 0

    def __enter__(self) -> Publishing:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def _publish(self, broker: Broker, topic: str, size: int) -> None:
        with broker.connect("hermod.pub") as peer:
            for begin in range(0, EACH, 200):
                publish(peer, numbered(topic, range(begin, begin + 200), size))
        self.done += 1

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(GUARD_SECONDS)
        assert self.done == len(TOPICS)


@pytest.fixture(params=FLAGS)
def busy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with Broker(*FLAGS[request.param], data=tmp_path) as broker:
        yield broker


def check_order(received: list[Delivered], first: int = 0) -> None:
    for topic in TOPICS:
        mine = [each for each in received if each.topic == topic]
        assert [each.sequence for each in mine] == list(range(first, EACH))
        assert all(each.payload.startswith(b"%d." % each.sequence) for each in mine)


def test_every_subscriber_gets_every_message_once_in_one_order(busy: Broker) -> None:
    """Subscribers that connect during and after publishing."""
    with ExitStack() as stack:
        publishing = stack.enter_context(Publishing(busy))
        subscribers = [stack.enter_context(subscribe(busy, *TOPICS, since="earliest"))]
        for part in range(1, 12):
            wait_for(lambda: total(busy, "log_next_offset") >= part * EACH // 6, "more messages")  # noqa: B023
            subscribers.append(stack.enter_context(subscribe(busy, patterns=[">"], since="earliest")))
        publishing.finish()
        subscribers.append(stack.enter_context(subscribe(busy, *TOPICS, since="earliest")))
        orders = [read_messages(subscriber, 2 * EACH) for subscriber in subscribers]
        check_order(orders[0])
        assert all(order == orders[0] for order in orders[1:])
        wait_for_total(busy, "replays_open", 0)
        for subscriber in subscribers:
            expect_no_more(subscriber)


def test_a_replay_from_a_sequence_that_is_being_published_starts_there(busy: Broker) -> None:
    """A sequence can be replayed as soon as one subscriber has received it."""
    with Publishing(busy) as publishing, subscribe(busy, *TOPICS) as live:
        for _ in range(15):
            last = {}
            for received in read_messages(live, 400):
                last[received.topic] = received.sequence
            starts = {topic: last[topic] + ahead for topic in last for ahead in (0, 1)}
            with subscribe(busy, *starts, since=starts) as subscriber:
                found = read_messages(subscriber, 100)
                for topic, start in starts.items():
                    mine = [received.sequence for received in found if received.topic == topic]
                    assert mine == list(range(start, start + len(mine)))
        publishing.finish()


def test_a_live_subscriber_replays_another_topic_without_loss(busy: Broker) -> None:
    with Publishing(busy) as publishing, subscribe(busy, "x", since="earliest") as subscriber:
        wait_for(lambda: total(busy, "log_next_offset") > EACH, "half of it")
        subscriber.send(handshake("y", since="earliest"))
        before = subscriber.read_until(hermod.OK).removesuffix(hermod.OK)
        subscriber.read = before + subscriber.read
        received = read_messages(subscriber, 2 * EACH)
        check_order(received)
        publishing.finish()


def test_a_live_topic_that_is_also_replayed_by_a_pattern_comes_once(busy: Broker) -> None:
    """The second handshake restarts the replay: every message from the start, once and in order."""
    with Publishing(busy) as publishing, subscribe(busy, "x") as subscriber:
        wait_for(lambda: total(busy, "log_next_offset") > EACH, "half of it")
        subscriber.send(handshake(patterns=[">"], since="earliest"))
        subscriber.read_until(hermod.OK)
        check_order(read_messages(subscriber, 2 * EACH))
        publishing.finish()
        wait_for_total(busy, "replays_open", 0)
        expect_no_more(subscriber)


def test_a_repeated_handshake_restarts_the_replay(busy: Broker) -> None:
    with Publishing(busy) as publishing, busy.connect("hermod.sub") as subscriber:
        for _ in range(5):
            subscriber.send(handshake(*TOPICS, since="earliest"))
            subscriber.read_until(hermod.OK)
        check_order(read_messages(subscriber, 2 * EACH))
        publishing.finish()
        wait_for_total(busy, "replays_open", 0)
        expect_no_more(subscriber)


def test_a_restart_in_between(tmp_path: Path) -> None:
    with Broker(SMALL, data=tmp_path) as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, numbered("t", range(5000), 60))
    with Broker(SMALL, data=tmp_path) as broker, broker.connect("hermod.pub") as publisher:
        with subscribe(broker, "t", since="earliest") as subscriber:
            publish(publisher, numbered("t", range(5000, 10_000), 60))
            received = read_messages(subscriber, 10_000)
            assert [each.sequence for each in received] == list(range(10_000))
            assert all(each.payload.startswith(b"%d." % each.sequence) for each in received)
        broker.kill()
    with Broker(SMALL, data=tmp_path) as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, numbered("t", range(10_000, 10_100), 60))
        with subscribe(broker, "t", since="earliest") as subscriber:
            received = read_messages(subscriber, 10_100)
            assert [each.payload for each in received] == [
                payload for _, payload in numbered("t", range(10_100), 60)
            ]
            sequences = [each.sequence for each in received]
            assert sequences[:10_000] == list(range(10_000))
            assert sequences[10_000:] == list(range(sequences[10_000], sequences[10_000] + 100))
            assert sequences[10_000] > 10_000
