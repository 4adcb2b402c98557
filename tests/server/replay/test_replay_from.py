"""`from` in a hermod handshake: the start position of a subscription."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from kit import hermod
from kit.broker import Broker
from kit.hermod import OK, expect_no_more
from kit.replay import Delivered, handshake, publish, read_messages, subscribe, total, wait_for_total
from kit.wire import Peer, wait_for

SMALL = "--set=log.segment_bytes=65536"
PATTERN = ("a", "b", "a", "c", "a", "b", "time")
"""The topics of consecutive messages, repeated."""
HALF = 2100


class Past(NamedTuple):
    """A broker with messages in its log."""

    broker: Broker
    everything: list[Delivered]
    middle: int
    """A time between the first and the second half, in milliseconds since the epoch."""

    def of(self, *topics: str) -> list[Delivered]:
        return [received for received in self.everything if received.topic in topics]


@pytest.fixture(scope="module", params=["sealed", "hot", "large"])
def past(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    """In one segment, or in many small ones, sealed or hot."""
    flags = {"sealed": [SMALL], "hot": [SMALL, "--set=log.seal=false"], "large": []}[request.param]
    with Broker(*flags, data=tmp_path_factory.mktemp("data")) as broker, broker.connect("hermod.pub") as publisher:
        messages = [(PATTERN[n % len(PATTERN)], b"%d" % n + b"." * (n % 300)) for n in range(2 * HALF)]
        publish_messages(publisher, messages[:HALF])
        middle = int(time.time() * 1000) + 1
        wait_for(lambda: time.time() * 1000 > middle, "the clock to move")
        publish_messages(publisher, messages[HALF:])
        if request.param == "sealed":
            wait_for(lambda: total(broker, "log_segments_sealed_total") > 3, "sealed segments")
        yield Past(broker, with_sequences(messages), middle)


def publish_messages(publisher: Peer, messages: list[tuple[str, bytes]]) -> None:
    """Publishes in groups and waits for the acks of each."""
    for begin in range(0, len(messages), 100):
        publish(publisher, messages[begin : begin + 100])


def with_sequences(messages: list[tuple[str, bytes]]) -> list[Delivered]:
    nexts: dict[str, int] = {}
    received: list[Delivered] = []
    for topic, payload in messages:
        received.append(Delivered(topic, nexts.get(topic, 0), payload))
        nexts[topic] = nexts.get(topic, 0) + 1
    return received


def check(past: Past, wanted: list[Delivered], *topics: str, since: object, patterns: Sequence[str] = ()) -> None:
    """Receives exactly these messages, then live ones."""
    with subscribe(past.broker, *topics, since=since, patterns=patterns) as subscriber:
        assert read_messages(subscriber, len(wanted)) == wanted
        expect_live(past, subscriber)


def expect_live(past: Past, subscriber: Peer) -> None:
    """The replay is complete."""
    wait_for_total(past.broker, "replays_open", 0)
    expect_no_more(subscriber)


def test_earliest(past: Past) -> None:
    check(past, past.of("a"), "a", since="earliest")
    check(past, past.of("a", "b", "time"), "time", "b", "a", "never", since="earliest")


def test_an_offset(past: Past) -> None:
    """Of all topics together; the first offset is that of the broker's own start event."""
    own = total(past.broker, "log_next_offset") - len(past.everything)
    with subscribe(past.broker, "a", since="@0") as subscriber:
        first = read_messages(subscriber, 1)
    assert first == past.of("a")[:1]
    after = int(own) + 2 * HALF
    check(past, [], patterns=[">"], since=f"@{after}")


def test_an_offset_past_the_end(past: Past) -> None:
    with past.broker.connect("hermod.sub") as peer:
        peer.send(handshake("a", since="@99999999"))
        assert b"there is no 99,999,999 yet" in peer.read_until(b"\n")


def test_latest(past: Past) -> None:
    check(past, [], "a", since="latest")


@pytest.mark.parametrize("sequence", [0, 1, 2, 299, 301, 902, 1798, 1799, 1800])
def test_replay_starts_at_the_sequence(past: Past, sequence: int) -> None:
    check(past, past.of("a")[sequence:], "a", since={"a": sequence})


@pytest.mark.parametrize("value", [{"topics": {"time": 17}}, {"topics": {"time": 17, "b": 1001}}])
def test_a_topic_may_be_called_time(past: Past, value: dict[str, dict[str, int]]) -> None:
    starts = value["topics"]
    wanted = [received for received in past.of(*starts) if received.sequence >= starts[received.topic]]
    check(past, wanted, *starts, since=value)


def test_each_topic_has_its_own_start_and_the_order_is_that_of_the_log(past: Past) -> None:
    starts = {"a": 1700, "b": 3, "c": 600}
    wanted = [received for received in past.of(*starts) if received.sequence >= starts[received.topic]]
    check(past, wanted, *starts, since=starts)


def test_topics_not_named_in_from_are_live(past: Past) -> None:
    check(past, past.of("c")[590:], "c", "a", since={"c": 590})


def test_a_time(past: Past) -> None:
    wanted = [received for received in past.everything[HALF:] if received.topic in "ab"]
    check(past, wanted, "a", "b", since={"time": past.middle})
    text = datetime.fromtimestamp(past.middle / 1000, UTC)
    check(past, wanted, "a", "b", since={"time": text.isoformat()})
    check(past, wanted, "a", "b", since={"time": text.isoformat().replace("+00:00", "Z")})
    check(past, wanted, "a", "b", since={"time": text.replace(tzinfo=None).isoformat()})


def test_times_before_everything_and_after_it(past: Past) -> None:
    check(past, past.of("c"), "c", since={"time": 0})
    check(past, past.of("c"), "c", since={"time": "1066-10-14"})
    check(past, [], "c", since={"time": "2999-12-31T23:59:59Z"})


@pytest.mark.parametrize(
    ("patterns", "topics"),
    [
        ([">"], {"a", "b", "c", "time"}),
        (["ti>"], {"time"}),
        (["~im", "~c"], {"time", "c"}),
        (["=a", "b"], {"a", "b"}),
    ],
)
def test_patterns(past: Past, patterns: list[str], topics: list[str]) -> None:
    check(past, past.of(*topics), patterns=patterns, since="earliest")
    wanted = [received for received in past.everything[HALF:] if received.topic in topics]
    check(past, wanted, patterns=patterns, since={"time": past.middle})


def test_several_matching_patterns_give_each_message_once(past: Past) -> None:
    check(past, past.everything, "a", "c", patterns=[">", "~a", "tim>"], since="earliest")


def test_a_topic_with_a_sequence_beside_a_pattern_that_has_none(past: Past) -> None:
    """Live messages that match both the pattern and the topic are delivered once."""
    with subscribe(past.broker, "c", patterns=[">"], since={"c": 595}) as subscriber:
        assert read_messages(subscriber, 5) == past.of("c")[595:]
        expect_live(past, subscriber)


@pytest.mark.parametrize("pace", [{"window": 7}, {"batch": 50}, {"window": 100, "batch": 30}, {"window": 1}])
def test_a_pace(past: Past, pace: dict[str, int]) -> None:
    wanted = past.of("a", "c")[-400:]
    starts = {topic: min(received.sequence for received in wanted if received.topic == topic) for topic in "ac"}
    with subscribe(past.broker, "a", "c", **pace, since=starts) as subscriber:
        for received in wanted:
            assert read_messages(subscriber, 1) == [received]
            subscriber.send(hermod.acknowledgement(received.topic, received.sequence))
        expect_live(past, subscriber)


def test_a_full_window_holds_a_replay_up(past: Past) -> None:
    with subscribe(past.broker, "a", window=3, since="earliest") as subscriber:
        assert read_messages(subscriber, 3) == past.of("a")[:3]
        subscriber.send(hermod.topics("never"))
        subscriber.expect(OK)
        subscriber.send(OK * 2)
        assert read_messages(subscriber, 2) == past.of("a")[3:5]
        expect_no_more(subscriber)


def test_a_sequence_that_is_not_there_yet(past: Past) -> None:
    for number in (1801, 5_000_000):
        with past.broker.connect("hermod.sub") as subscriber:
            subscriber.send(handshake("a", "b", since={"b": 3, "a": number}))
            error = hermod.read_error(subscriber)
            assert error["code"] == 400
            assert "1,800" in str(error["message"]) and f"{number:,}" in str(error["message"])
            assert subscriber.expect_closed() == b""


def test_a_sequence_of_an_unknown_topic(past: Past) -> None:
    check(past, [], "unknown", since={"unknown": 0})
    with past.broker.connect("hermod.sub") as subscriber:
        subscriber.send(handshake("unknown", since={"unknown": 1}))
        hermod.expect_error(subscriber, 400)
        assert subscriber.expect_closed() == b""


def test_a_second_handshake_adds(past: Past) -> None:
    with subscribe(past.broker, "a", since={"a": 1790}) as subscriber:
        assert read_messages(subscriber, 10) == past.of("a")[1790:]
        subscriber.send(handshake("c", since={"c": 580}))
        subscriber.expect(OK)
        assert read_messages(subscriber, 20) == past.of("c")[580:]
        expect_live(past, subscriber)


def test_two_handshakes_in_one_packet(past: Past) -> None:
    with past.broker.connect("hermod.sub") as subscriber:
        first, second = handshake("a", since={"a": 1000}), handshake("c", since="earliest")
        subscriber.send(first + second)
        subscriber.expect(OK * 2)
        received = read_messages(subscriber, 1400)
        assert [each for each in received if each.topic == "a"] == past.of("a")[1000:]
        assert [each for each in received if each.topic == "c"] == past.of("c")
        expect_live(past, subscriber)


def test_a_second_subscription_to_the_topic_restarts_the_replay(past: Past) -> None:
    with subscribe(past.broker, "c", since={"c": 500}) as subscriber:
        for start in (0, 590, 3):
            subscriber.send(handshake("c", since={"c": start}))
            subscriber.read_until(OK)
            assert read_messages(subscriber, 600 - start) == past.of("c")[start:]
        expect_live(past, subscriber)


def test_a_second_subscription_to_the_topic_while_the_window_is_full(past: Past) -> None:
    """Messages held by the window come first, then everything from the start."""
    with subscribe(past.broker, "c", window=3, since="earliest") as subscriber:
        assert read_messages(subscriber, 3) == past.of("c")[:3]
        subscriber.send(handshake("c", since="earliest"))
        subscriber.expect(OK)
        subscriber.send(hermod.acknowledgement("c", 2))
        received: list[Delivered] = []
        while not received or received[-1].sequence or len(received) < 4:
            received += read_messages(subscriber, 1)
            subscriber.send(hermod.acknowledgement("c", received[-1].sequence))
        assert received[:-1] == past.of("c")[3 : 2 + len(received)]
        for wanted in past.of("c")[1:]:
            assert read_messages(subscriber, 1) == [wanted]
            subscriber.send(hermod.acknowledgement("c", wanted.sequence))
        expect_live(past, subscriber)


def test_a_window_that_is_set_during_a_replay(past: Past) -> None:
    """Every message is delivered, whichever order the subscriptions have."""
    with past.broker.connect("hermod.sub") as subscriber:
        subscriber.send(handshake("a", since="earliest") + hermod.topics("never", window=5))
        subscriber.expect(OK * 2)
        for received in past.of("a"):
            assert read_messages(subscriber, 1) == [received]
            subscriber.send(OK)
        expect_live(past, subscriber)


def test_without_a_log_replay_is_refused() -> None:
    with Broker() as broker, broker.connect("hermod.sub") as subscriber:
        subscriber.send(handshake("a", since="earliest") + handshake("a", since="latest"))
        hermod.expect_error(subscriber, 501)
        subscriber.expect(OK)
