"""Policy `spill`: a subscriber too slow for live delivery is served from the log, completely and in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit import hermod, ubre
from kit.broker import Broker
from kit.flow import MIB, resident_bytes
from kit.frames import pub
from kit.hermod import expect_no_more
from kit.replay import Delivered, handshake, read_messages, subscribe, total, wait_for_total
from kit.spilled import SMALL_QUEUE, TRIES, NumberedPublisher, expect_all, payload
from kit.subscribers import LISTEN, SUBSCRIBERS, ports_of, send_request, subscriptions, wait_until_subscribed
from kit.wire import wait_for


@pytest.fixture
def spilling(tmp_path: Path) -> Iterator[Broker]:
    with Broker(SMALL_QUEUE, data=tmp_path, listen=LISTEN, options="?policy=spill") as broker:
        yield broker


@pytest.mark.parametrize("name", SUBSCRIBERS)
def test_a_subscriber_that_stops_reading_and_goes_on_misses_nothing(spilling: Broker, name: str) -> None:
    kind = SUBSCRIBERS[name]
    with kind.open(spilling, "flow", 4096) as slow, NumberedPublisher(spilling) as publisher:
        publisher.publish_until_spilled()
        assert total(spilling, "replays_open") == 1
        assert f"{kind.listener} #" in spilling.wait_for_log("served from the log")
        expect_all(kind, slow, range(publisher.count))
        wait_for_total(spilling, "replays_open", 0)
        spilling.wait_for_log("caught up")
        before = publisher.count
        publisher.publish(10)
        expect_all(kind, slow, range(before, publisher.count))
        assert slow.read == b""
        assert total(spilling, "replays_open") == 0, "a small burst is delivered live"


def test_a_subscriber_can_fall_behind_repeatedly(spilling: Broker) -> None:
    kind = SUBSCRIBERS["simplest"]
    with kind.open(spilling, "flow", 4096) as slow, NumberedPublisher(spilling) as publisher:
        for spilled in (1, 2, 3):
            before = publisher.count
            publisher.publish_until_spilled(spilled)
            expect_all(kind, slow, range(before, publisher.count))
            wait_for_total(spilling, "replays_open", 0)


def test_a_stalled_subscriber_is_not_closed(tmp_path: Path) -> None:
    """Other policies close a connection without progress for `limits.stall_seconds`."""
    flags = (SMALL_QUEUE, "--set=limits.policy=spill", "--set=limits.stall_seconds=0.1")
    kind = SUBSCRIBERS["simplest"]
    with Broker(*flags, data=tmp_path, listen=LISTEN) as broker:
        slow, publisher = kind.open(broker, "flow", 4096), NumberedPublisher(broker)
        with slow, publisher:
            publisher.publish_until_spilled()
            wait_for(lambda: _stuck_seconds(broker) > 1.5, "some looks at who takes nothing")
            expect_all(kind, slow, range(publisher.count))


def _stuck_seconds(broker: Broker) -> float:
    """Seconds without progress on the simplest connection."""
    found = send_request(broker, "polycast/connections")["connections"]
    [idle] = [float(each["idle_seconds"]) for each in found if each["listener"] == "simplest"]
    return idle


def test_the_policy_can_be_set_for_all_listeners(tmp_path: Path) -> None:
    flags = (SMALL_QUEUE, "--set=limits.policy=spill")
    kind = SUBSCRIBERS["fanout"]
    with Broker(*flags, data=tmp_path, listen=LISTEN) as broker:
        slow, publisher = kind.open(broker, "flow", 4096), NumberedPublisher(broker)
        with slow, publisher:
            publisher.publish_until_spilled()
            expect_all(kind, slow, range(publisher.count))


def test_spill_with_committed_delivery(tmp_path: Path) -> None:
    flags = (SMALL_QUEUE, "--set=log.delivery=committed", "--set=log.segment_bytes=1000000")
    with Broker(*flags, data=tmp_path, listen=LISTEN, options="?policy=spill") as broker:
        kinds = [SUBSCRIBERS["simplest"], SUBSCRIBERS["hermod"]]
        with ExitStack() as stack:
            slow = [stack.enter_context(kind.open(broker, "flow", 4096)) for kind in kinds]
            publisher = stack.enter_context(NumberedPublisher(broker))
            publisher.publish_until_spilled(2)
            for kind, peer in zip(kinds, slow, strict=True):
                expect_all(kind, peer, range(publisher.count))
            wait_for_total(broker, "replays_open", 0)


def test_many_spilled_subscribers_and_a_fast_one(spilling: Broker) -> None:
    kinds = [kind for kind in SUBSCRIBERS.values() for _ in range(2)]
    with ExitStack() as stack:
        slow = [stack.enter_context(kind.open(spilling, "flow", 4096)) for kind in kinds]
        publisher = stack.enter_context(NumberedPublisher(spilling))
        live = stack.enter_context(subscribe(spilling, "flow"))
        while total(spilling, "subscribers_spilled_total") < len(kinds):
            assert publisher.count < TRIES
            publisher.publish(2)
            received = read_messages(live, 2)
            assert [each.sequence for each in received] == [publisher.count - 2, publisher.count - 1]
        assert total(spilling, "replays_open") == len(kinds)
        publisher.publish(2)
        assert len(read_messages(live, 2)) == 2, "nobody waits for those who are behind"
        for kind, peer in zip(kinds, slow, strict=True):
            expect_all(kind, peer, range(publisher.count))
        wait_for_total(spilling, "replays_open", 0)


def test_spilled_subscribers_use_no_memory(tmp_path: Path) -> None:
    """Neither live messages nor messages read from the log are queued for spilled subscribers."""
    with (
        Broker(SMALL_QUEUE, data=tmp_path, listen=LISTEN, options="?policy=spill", fresh=True) as broker,
        ExitStack() as stack,
    ):
        publisher = stack.enter_context(NumberedPublisher(broker))
        publisher.publish(4000)  # fills the part of the log that is cached in memory
        before, received = resident_bytes(broker.process.pid), publisher.count
        kinds = [SUBSCRIBERS[name] for name in ("simplest", "hermod", "ubre", "nanomsg") for _ in range(10)]
        slow = [stack.enter_context(kind.open(broker, "flow", 4096)) for kind in kinds]
        while total(broker, "subscribers_spilled_total") < len(kinds):
            publisher.publish(100)
        publisher.publish(4000)
        for kind, peer in zip(kinds[::10], slow[::10], strict=True):
            expect_all(kind, peer, range(received, received + 2000))
        assert resident_bytes(broker.process.pid, "VmHWM") - before < 256 * MIB


# -- combined with other features ------------------------------------------------------------------------


def test_a_window_that_is_not_acknowledged(spilling: Broker) -> None:
    with subscribe(spilling, "flow", window=3) as subscriber, NumberedPublisher(spilling) as publisher:
        publisher.publish_until_spilled()
        for number in range(publisher.count):
            assert read_messages(subscriber, 1) == [Delivered("flow", number, payload(number))]
            subscriber.send(hermod.acknowledgement("flow", number) if number % 2 else hermod.OK)
        wait_for_total(spilling, "replays_open", 0)
        expect_no_more(subscriber)


@pytest.mark.parametrize("pace", [{"window": 1_000_000}, {"window": 1000, "batch": 7}, {"batch": 5}])
def test_a_window_that_is_larger_than_the_queue(spilling: Broker, pace: dict[str, int]) -> None:
    with (
        subscribe(spilling, "flow", receive_bytes=4096, **pace) as subscriber,
        NumberedPublisher(spilling) as publisher,
    ):
        publisher.publish_until_spilled()
        for number in range(publisher.count):
            assert read_messages(subscriber, 1) == [Delivered("flow", number, payload(number))]
            subscriber.send(hermod.acknowledgement("flow", number))
        wait_for_total(spilling, "replays_open", 0)
        expect_no_more(subscriber)


def test_a_window_beside_a_replay(spilling: Broker) -> None:
    """A replay and a spill on one connection: both complete, each in order."""
    with NumberedPublisher(spilling, "past") as past, NumberedPublisher(spilling) as publisher:
        past.publish(300)
        publisher.publish(1)
        with subscribe(spilling, "past", "flow", window=5, since={"past": 0}) as subscriber:
            publisher.publish_until_spilled()
            received: dict[str, int] = {"past": -1, "flow": 0}
            for _ in range(past.count + publisher.count - 1):
                [message] = read_messages(subscriber, 1)
                received[message.topic] += 1
                assert message == Delivered(
                    message.topic, received[message.topic], payload(received[message.topic])
                )
                subscriber.send(hermod.OK)
            wait_for_total(spilling, "replays_open", 0)
            expect_no_more(subscriber)


def test_a_replay_that_ends_while_the_connection_is_behind(spilling: Broker) -> None:
    with NumberedPublisher(spilling, "past") as past, NumberedPublisher(spilling) as publisher:
        past.publish(3)
        with subscribe(spilling, "flow", receive_bytes=4096) as subscriber:
            publisher.publish_until_spilled()
            past.publish(3)
            subscriber.send(handshake("past", since="earliest"))
            wait_until_subscribed(spilling, subscriber, 2)
            past.publish(3)
            publisher.publish(3)
            frames = subscriber.read_until(hermod.OK).removesuffix(hermod.OK)
            subscriber.read = frames + subscriber.read
            received = read_messages(subscriber, past.count + publisher.count)
            for topic, count in (("past", past.count), ("flow", publisher.count)):
                assert [each.sequence for each in received if each.topic == topic] == list(range(count))
            wait_for_total(spilling, "replays_open", 0)
            expect_no_more(subscriber)


def test_a_publisher_gets_no_own_messages_without_echo(spilling: Broker) -> None:
    kind = SUBSCRIBERS["simplest"]
    with kind.open(spilling, "flow", 4096) as slow, NumberedPublisher(spilling) as publisher:
        publisher.publish_until_spilled()
        numbers = publisher.count
        slow.send(pub("flow", b"mine") * 10)
        wait_for(lambda: total(spilling, "log_durable_offset") == numbers + 10, "its own to be durable")
        publisher.publish(20)
        expect_all(kind, slow, range(publisher.count))
        wait_for_total(spilling, "replays_open", 0)
        assert slow.read == b""


def test_subscriptions_that_change_during_a_spill(spilling: Broker) -> None:
    """A new subscription starts live; messages of an ended one are not delivered."""
    kind = SUBSCRIBERS["ubre"]
    with (
        kind.open(spilling, "flow", 4096) as slow,
        NumberedPublisher(spilling) as publisher,
        NumberedPublisher(spilling, "other") as other,
        NumberedPublisher(spilling, "third") as third,
    ):
        publisher.publish_until_spilled()
        other.publish(10)
        third.publish(10)
        slow.send(ubre.line(subscribe="other") + ubre.line(subscribe="third"))
        wait_until_subscribed(spilling, slow, 3)
        other.publish(10)
        third.publish(10)
        slow.send(ubre.line(unsubscribe="third"))
        wait_until_subscribed(spilling, slow, 2)
        publisher.publish(10)
        expect_all(kind, slow, range(publisher.count - 10))
        expect_all(kind, slow, range(10, 20), "other")
        expect_all(kind, slow, range(publisher.count - 10, publisher.count))
        wait_for_total(spilling, "replays_open", 0)
        third.publish(1)
        other.publish(1)
        expect_all(kind, slow, range(20, 21), "other")
        assert slow.read == b""


def test_a_broker_that_stops_during_a_spill(tmp_path: Path) -> None:
    kind = SUBSCRIBERS["hermod"]
    flags = (SMALL_QUEUE, "--set=limits.shutdown_seconds=0.1")
    with Broker(*flags, data=tmp_path, listen=LISTEN, options="?policy=spill") as broker:
        slow, publisher = kind.open(broker, "flow", 4096), NumberedPublisher(broker)
        with slow, publisher:
            publisher.publish_until_spilled()
            assert broker.stop() == 0
            text = publisher.count
    with Broker(data=tmp_path, listen=LISTEN) as broker, subscribe(broker, "flow", since="earliest") as late:
        assert "not clean" not in broker.log()
        assert [each.sequence for each in read_messages(late, text)] == list(range(text))


def test_a_subscriber_that_disconnects_during_a_spill_leaves_nothing_behind(spilling: Broker) -> None:
    with SUBSCRIBERS["fanout"].open(spilling, "flow", 4096) as slow, NumberedPublisher(spilling) as publisher:
        publisher.publish_until_spilled()
        ports = ports_of(slow)
        slow.close()
        wait_for_total(spilling, "replays_open", 0)
        assert subscriptions(spilling, ports) == 0


def test_replies_have_a_limit_of_their_own(spilling: Broker) -> None:
    """A spilled subscriber that sends requests and never reads exceeds the limit of replies and is closed."""
    kind = SUBSCRIBERS["ubre"]
    with kind.open(spilling, "flow", 4096) as slow, NumberedPublisher(spilling) as publisher:
        publisher.publish_until_spilled()
        slow.socket.settimeout(0.5)
        with pytest.raises(OSError):
            while "too slow: " not in spilling.log():
                slow.send(ubre.line(request="polycast/none", id="x" * 1000) * 100)
            raise ConnectionResetError
        assert "replies" in spilling.wait_for_log("too slow: ")
        wait_for_total(spilling, "replays_open", 0)
        assert send_request(spilling, "polycast/stats")["subscribers_spilled"] == 1
