"""Batches with a `batch_id` are atomic and idempotent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.hermod import OK, expect_error, read_error
from kit.replay import Delivered, publish, read_messages, subscribe, total, wait_for_total
from kit.wire import GUARD_SECONDS, Peer, wait_for
from polycast.server.dispatch.publisher import FORWARD_BATCH_LIMIT


@pytest.fixture(scope="module")
def logging_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("data")) as broker:
        yield broker


def batch(topic: str, batch_id: str, *payloads: bytes) -> bytes:
    messages = [hermod.message(topic, payload) for payload in payloads]
    return hermod.count(len(payloads), batch_id=batch_id) + b"".join(messages)


def check_log(broker: Broker, topic: str, *payloads: bytes) -> None:
    """Exactly these messages are durable."""
    with broker.connect("hermod.pub") as peer, subscribe(broker, topic, since="earliest") as subscriber:
        publish(peer, [(topic, b"the end")])
        received = read_messages(subscriber, len(payloads) + 1)
        assert [each.payload for each in received] == [*payloads, b"the end"]


def test_a_repeat_on_the_same_connection(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        for _ in range(3):
            peer.send(batch("same", "same", b"1", b"2", b"3"))
            peer.expect(hermod.ok(3))
    check_log(logging_broker, "same", b"1", b"2", b"3")


def test_the_number_of_messages_is_limited_on_a_forwarding_broker(tmp_path: Path) -> None:
    with Broker("--forward", data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(batch("t", "large", *[b""] * (FORWARD_BATCH_LIMIT + 1)))
        error = read_error(peer)
        assert error["code"] == 422
        assert f"{FORWARD_BATCH_LIMIT:,}" in str(error["message"]) and "simplest.forward" in str(error["message"])
        peer.send(batch("t", "fits", *[b""] * FORWARD_BATCH_LIMIT))
        peer.expect(hermod.ok(FORWARD_BATCH_LIMIT))


def test_repeats_in_one_packet(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        one = hermod.message("packet", b"single")
        peer.send(batch("packet", "packet", b"1", b"2") * 5 + one)
        peer.expect(hermod.ok(2) * 5 + OK)
    check_log(logging_broker, "packet", b"1", b"2", b"single")


def test_a_repeat_on_another_connection(logging_broker: Broker) -> None:
    for _ in range(3):
        with logging_broker.connect("hermod.pub") as peer:
            peer.send(batch("other", "other", b"1", b"2"))
            peer.expect(hermod.ok(2))
    check_log(logging_broker, "other", b"1", b"2")


def test_concurrent_batches_with_the_same_id(logging_broker: Broker) -> None:
    """The first request publishes the batch; every request is acknowledged."""
    frames = batch("race", "race", *(b"%d" % number for number in range(500)))
    peers = [logging_broker.connect("hermod.pub") for _ in range(20)]
    threads = [threading.Thread(target=peer.send, args=(frames,), daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    for peer, thread in zip(peers, threads, strict=True):
        peer.expect(hermod.ok(500))
        thread.join(GUARD_SECONDS)
        peer.close()
    check_log(logging_broker, "race", *(b"%d" % number for number in range(500)))


def test_other_content_under_the_same_id_is_not_looked_at_but_its_count_is(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(batch("content", "content", b"first", b"of two"))
        peer.expect(hermod.ok(2))
        peer.send(batch("content", "content", b"second", b"of two"))
        peer.expect(hermod.ok(2))
        peer.send(batch("content", "content", b"third", b"of", b"three"))
        error = hermod.read_error(peer)
        assert (error["code"], error["count"]) == (422, 0)
        assert "with 2 messages" in str(error["message"]) and "has 3" in str(error["message"])
        peer.send(batch("elsewhere", "content", b"fourth"))
        expect_error(peer, 422, count=0)
        peer.send(batch("content", "content", b"first", b"of two"))
        peer.expect(hermod.ok(2))
    check_log(logging_broker, "content", b"first", b"of two")
    check_log(logging_broker, "elsewhere")


def test_subscribers_get_a_batch_once_and_whole(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer, subscribe(logging_broker, "heard") as subscriber:
        frames = batch("heard", "heard", b"1", b"2")
        peer.send(frames[:-1])
        publish_beside(logging_broker, "heard", b"between")
        assert read_messages(subscriber, 1) == [Delivered("heard", 0, b"between")]
        peer.send(frames[-1:] + frames)
        peer.expect(hermod.ok(2) * 2)
        assert read_messages(subscriber, 2) == [Delivered("heard", 1, b"1"), Delivered("heard", 2, b"2")]
        hermod.expect_no_more(subscriber)


def publish_beside(broker: Broker, topic: str, payload: bytes) -> None:
    with broker.connect("hermod.pub") as other:
        publish(other, [(topic, payload)])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_message_publishes_nothing_and_does_not_use_the_id(logging_broker: Broker, place: int) -> None:
    topic = f"bad/{place}"
    messages = [hermod.message(topic, b"%d" % number) for number in range(3)]
    bad = [*messages]
    bad[place] = hermod.message(topic, b"bad", check="0" * 40)
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.count(3, batch_id=topic) + b"".join(bad))
        expect_error(peer, 422, count=0)
        peer.send(hermod.count(3, batch_id=topic) + b"".join(messages))
        peer.expect(hermod.ok(3))
        peer.send(hermod.count(3, batch_id=topic) + b"".join(bad))
        expect_error(peer, 422, count=0)
    check_log(logging_broker, topic, b"0", b"1", b"2")


@pytest.mark.parametrize("cut", [1, 40, 130, 200])
def test_a_connection_that_is_lost_in_the_middle_publishes_nothing(logging_broker: Broker, cut: int) -> None:
    topic = f"cut/{cut}"
    frames = batch(topic, topic, b"1", b"2", b"3")
    for end in ("close", "shut"):
        with logging_broker.connect("hermod.pub") as peer:
            peer.send(frames[:-cut])
            if end == "shut":
                peer.shut()
                assert peer.expect_closed() == b""
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(frames)
        peer.expect(hermod.ok(3))
    check_log(logging_broker, topic, b"1", b"2", b"3")


def test_a_broker_that_is_stopped_in_the_middle(tmp_path: Path) -> None:
    frames = batch("t", "id", b"1", b"2")
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(hermod.message("u", b"x") + frames[:-1])
        peer.expect(OK)
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(frames)
        peer.expect(hermod.ok(2))
        check_log(broker, "t", b"1", b"2")


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_after_a_restart(tmp_path: Path, how: str) -> None:
    """An old batch in a sealed segment is known too."""
    flag = "--set=log.segment_bytes=65536"
    with Broker(flag, data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(batch("t", "old", b"1", b"2"))
        peer.expect(hermod.ok(2))
        for _ in range(10):
            publish(peer, [("filler", b"." * 1000)] * 100)
        wait_for(lambda: total(broker, "log_segments_sealed_total") > 3, "sealed segments")
        peer.send(batch("t", "new", b"3"))
        peer.expect(hermod.ok(1))
        if how == "killed":
            broker.kill()
    for _ in range(2):
        with Broker(flag, data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
            assert total(broker, "log_batch_ids") == 2
            peer.send(batch("t", "new", b"3") + batch("t", "old", b"1", b"2"))
            peer.expect(hermod.ok(1) + hermod.ok(2))
            if how == "killed":
                broker.kill()
    with Broker(flag, data=tmp_path) as broker:
        check_log(broker, "t", b"1", b"2", b"3")


def test_a_batch_acknowledged_at_the_moment_of_a_crash(tmp_path: Path) -> None:
    for turn in range(2):
        with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
            peer.send(batch("t", f"{turn}", b"%d" % turn) + batch("t", f"{turn} more", b"more"))
            peer.expect(hermod.ok(1))
            broker.kill()
            acknowledged = peer.expect_closed().count(b"OK")
        with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
            known = total(broker, "log_batch_ids")
            assert known in (2 * turn + 1 + acknowledged, 2 * turn + 2)
            peer.send(batch("t", f"{turn}", b"%d" % turn) + batch("t", f"{turn} more", b"more"))
            peer.expect(hermod.ok(1) * 2)
    with Broker(data=tmp_path) as broker:
        check_log(broker, "t", *(payload for turn in range(2) for payload in (b"%d" % turn, b"more")))


def test_the_number_of_remembered_ids_is_limited(tmp_path: Path) -> None:
    flag = "--set=log.batch_ids=2"
    with Broker(flag, data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        for name in ("a", "b", "c", "a"):  # the id of c evicts a; that of a evicts b
            peer.send(batch("t", name, name.encode()))
            peer.expect(hermod.ok(1))
        assert total(broker, "log_batch_ids") == 2
        check_log(broker, "t", b"a", b"b", b"c", b"a")
    with Broker(flag, data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        assert total(broker, "log_batch_ids") == 2
        for name in ("c", "a", "b"):
            peer.send(batch("u", name, name.encode()))
            peer.expect(hermod.ok(1))
        check_log(broker, "u", b"b")


def test_ids_expire(tmp_path: Path) -> None:
    with (
        Broker("--set=log.batch_id_seconds=0.2", data=tmp_path) as broker,
        broker.connect("hermod.pub") as peer,
    ):

        def published_again() -> bool:
            peer.send(batch("t", "id", b"x"))
            peer.expect(hermod.ok(1))
            return total(broker, "log_next_offset") > 1

        assert not published_again()
        wait_for(published_again, "the id to be forgotten")
        wait_for_total(broker, "log_batch_ids", 1)


def test_other_names_of_a_message_are_not_counted(tmp_path: Path) -> None:
    """With forwarding, the log also contains the message under its forwarded name."""
    for start in range(2):
        with (
            Broker("--forward", data=tmp_path) as broker,
            broker.connect("hermod.pub") as peer,
            broker.connect("simplest") as subscriber,
        ):
            subscriber.send(b"sub //fwd/t\n")
            wait_for_another_name(broker, peer, start)
            peer.send(batch("t", "id", b"1", b"2") * 2)
            peer.expect(hermod.ok(2) * 2)
            broker.kill()


def wait_for_another_name(broker: Broker, peer: Peer, start: int) -> None:
    probes = count()

    def is_stored_twice() -> bool:
        before = total(broker, "log_next_offset")
        publish(peer, [("t", b"probe %d of %d" % (next(probes), start))])
        return total(broker, "log_next_offset") - before > 1

    wait_for(is_stored_twice, "a message under another name")


def test_none_are_remembered_where_none_may_be(tmp_path: Path) -> None:
    with Broker("--set=log.batch_ids=0", data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(batch("t", "id", b"x") * 2)
        peer.expect(hermod.ok(1) * 2)
        assert total(broker, "log_next_offset") == 2


@pytest.mark.parametrize("batch_id", ["", 7, None, ["id"], "x" * 257, "é" * 129])
def test_ids_that_are_none(logging_broker: Broker, batch_id: object) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.count(1, batch_id=batch_id) + hermod.message("none", b"x"))
        expect_error(peer, 400)
        assert peer.expect_closed() == b""


def test_ids_of_any_characters(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        for batch_id in ('"\\\n{}é\u0000', "x" * 256, " ", "\U0001f41f"):
            for _ in range(2):
                peer.send(batch("any", batch_id, b"x"))
                peer.expect(hermod.ok(1))
    check_log(logging_broker, "any", *[b"x"] * 4)


def test_an_empty_batch_needs_no_id(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        peer.send(hermod.count(0, batch_id="empty") + batch("empty", "empty", b"x"))
        peer.expect(hermod.ok(0) + hermod.ok(1))
    check_log(logging_broker, "empty", b"x")


def test_a_batch_has_a_size(tmp_path: Path) -> None:
    with Broker("--set=hermod.batch_bytes=1000", data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        peer.send(batch("t", "id", b"x" * 700, b"x" * 700))
        error = hermod.read_error(peer)
        assert error["code"] == 413 and "1,000" in str(error["message"])
        assert peer.expect_closed() == b""
        assert total(broker, "log_next_offset") == 0


def test_without_a_log_batch_ids_are_refused() -> None:
    with Broker() as broker, broker.connect("hermod.pub") as peer:
        peer.send(batch("t", "id", b"x") + hermod.message("t", b"y"))
        expect_error(peer, 501, count=0)
        peer.expect(OK)


def test_pipelined_with_everything_else(logging_broker: Broker) -> None:
    with logging_broker.connect("hermod.pub") as peer:
        expected = b""
        frames = b""
        for number in range(200):
            frames += batch("pipe", f"pipe {number % 50}", b"%d" % number, b"%d" % number)
            frames += hermod.message("pipe", b"single")
            expected += hermod.ok(2) + OK
        sending = threading.Thread(target=peer.send, args=(frames,), daemon=True)
        sending.start()
        peer.expect(expected)
        sending.join(GUARD_SECONDS)
    payloads: list[bytes] = []
    for number in range(200):
        payloads += [b"%d" % number] * 2 * (number < 50) + [b"single"]
    check_log(logging_broker, "pipe", *payloads)
