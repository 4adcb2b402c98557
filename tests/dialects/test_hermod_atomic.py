"""Batches of `hermod` with an id: whole or not at all, and what is buffered meanwhile."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import Feeder, burst_rows, feed, merged, one_by_one, rows
from kit import hermod
from polycast.dialects.hermod.session import HermodSession
from polycast.dialects.hermod.settings import HermodSettings
from polycast.dialects.session import SessionContext
from polycast.model import Ack, Burst, Closing, Event, Limits, PublishBatch

MESSAGE_BYTES = 100
"""What each message counts beside its topic and its payload."""
BAD = hermod.message("a", b"xx", "0" * 40)


def feeder_of(batch_bytes: int = 2**20) -> Feeder:
    tables = {"hermod": HermodSettings(batch_bytes=batch_bytes)}
    return Feeder(HermodSession(SessionContext(tables=tables, has_log=True)))


def gathered(feeder: Feeder) -> int:
    assert isinstance(feeder.session, HermodSession)
    return feeder.session.buffered_bytes


def batch(*messages: bytes, batch_id: str = "x") -> bytes:
    return hermod.count(len(messages), batch_id=batch_id) + b"".join(messages)


def once_in(events: list[Event]) -> PublishBatch:
    [event] = [event for event in events if isinstance(event, PublishBatch)]
    return event


# -- what it becomes -------------------------------------------------------------------------------------


def test_the_reply_has_the_durable_count() -> None:
    feeder = feeder_of()
    feeder.give(batch(hermod.message("a", b"1"), hermod.message("b", b"2")))
    [once] = feeder.events
    assert isinstance(once, PublishBatch)
    assert once.batch.batch_id == "x"
    assert once.to_ack(2) == hermod.ok(2)
    assert once.to_ack(7) == hermod.ok(7), "as many as there were when it first came"
    error = json.loads(once.to_failure("the disk is full", 1))
    assert error == {"status": "ERROR", "code": 500, "message": "not stored: the disk is full", "count": 0}


def test_a_batch_in_one_read_is_not_copied() -> None:
    data = batch(hermod.message("a", b"1"))
    once = once_in(feed("hermod.pub", Limits(), [data], has_log=True).events)
    assert once.burst.block is data


def test_checked_checksums_survive_reads() -> None:
    feeder = feeder_of()
    for part in one_by_one(batch(hermod.message("a", b"1"), hermod.message("b", b"2"))):
        feeder.give(part)
    burst = once_in(feeder.events).burst
    assert burst.digests == (hermod.checksum(b"1") + hermod.checksum(b"2")).encode()


def test_promises_and_batches_keep_their_order() -> None:
    single = hermod.message("s", b"x")
    feeder = feeder_of()
    feeder.give(single * 2 + batch(single, batch_id="1") + batch(single, batch_id="2") + hermod.count(1) + single)
    assert [type(event) for event in feeder.events] == [Burst, Ack, PublishBatch, PublishBatch, Burst, Ack]


frames = st.builds(
    hermod.message, st.sampled_from("ab"), st.binary(max_size=20), gap=st.sampled_from([b"", b"\n"])
)


@given(st.lists(frames, min_size=1, max_size=10), st.data())
def test_it_is_the_same_however_it_was_cut(messages: list[bytes], data: st.DataObject) -> None:
    sent = hermod.message("before", b"x") + batch(*messages) + hermod.message("behind", b"x")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=6)))
    feeder = feeder_of()
    for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        feeder.give(sent[begin:end])
    single = feed("hermod.pub", Limits(), [b"".join(messages)]).events[0]
    assert isinstance(single, Burst)
    once = once_in(feeder.events)
    assert burst_rows(once.burst) == burst_rows(single)
    assert once.burst.topics == single.topics and once.burst.run_ends == single.run_ends
    assert [type(event) for event in feeder.events] == [Burst, Ack, PublishBatch, Burst, Ack]
    assert gathered(feeder) == 0


limits = st.integers(100, 600)
words = st.sampled_from(
    [
        hermod.message("a", b"1"),
        hermod.message("bb", b"22"),
        hermod.message("a", b"", ""),
        hermod.message("a", b"3" * 90, gap=b"\r\n"),
        BAD,
        hermod.count(2, batch_id="x"),
        hermod.count(3, batch_id="y"),
        hermod.count(1),
        hermod.count(0, batch_id="z"),
        hermod.topics("a"),
        hermod.topics("a", **{"from": {"a": 1}}),
        b" \n",
    ]
)


@given(st.lists(words, max_size=12), limits)
def test_whole_equals_byte_by_byte_at_the_limit(text: list[bytes], limit: int) -> None:
    sent = b"".join(text)
    whole, slow = feeder_of(limit), feeder_of(limit)
    whole.give(sent)
    for part in one_by_one(sent):
        slow.give(part)
        assert gathered(slow) <= limit
    assert merged(rows(whole.events, "hermod")) == merged(rows(slow.events, "hermod"))


# -- what is buffered meanwhile --------------------------------------------------------------------------


def test_buffered_messages_count() -> None:
    feeder = feeder_of()
    feeder.give(hermod.count(3, batch_id="x") + hermod.message("topic", b"payload"))
    assert gathered(feeder) == MESSAGE_BYTES + len("topic") + len(b"payload")
    feeder.give(hermod.message("a", b"", gap=b"") + hermod.message("a", b"x")[:-1])
    assert gathered(feeder) == 2 * MESSAGE_BYTES + len("topic") + len(b"payload") + len("a")
    assert feeder.events == []
    feeder.give(b"x")
    assert gathered(feeder) == 0
    assert len(once_in(feeder.events).burst) == 3


def test_a_bad_message_releases_the_buffer() -> None:
    feeder = feeder_of()
    feeder.give(hermod.count(5, batch_id="x") + hermod.message("a", b"y" * 1000))
    feeder.give(BAD)
    assert gathered(feeder) == 0
    feeder.give(hermod.message("a", b"y" * 1000) * 2)
    assert gathered(feeder) == 0


def test_the_end_in_its_middle_publishes_nothing_and_keeps_nothing() -> None:
    feeder = feeder_of()
    feeder.give(hermod.count(3, batch_id="x") + hermod.message("a", b"1") * 2)
    feeder.end()
    feeder.session.close()
    assert feeder.events == []
    assert gathered(feeder) == 0


def test_empty_messages_without_end_are_past_the_limit_at_last() -> None:
    feeder = feeder_of(batch_bytes=10_000)
    feeder.give(hermod.count(10**12, batch_id="x"))
    for _ in range(200):
        feeder.give(hermod.message("", b""))
        assert gathered(feeder) <= 10_000
    assert feeder.closed


@pytest.mark.parametrize("size", [1000, 10**6, 16 * 2**20])
def test_a_payload_past_the_limit_is_refused_at_its_header(size: int) -> None:
    feeder = feeder_of(batch_bytes=1000)
    feeder.give(hermod.count(1, batch_id="x") + b'{"topic": "a", "payload_size": %d, "checksum": ""}' % size)
    [closing] = feeder.events
    assert isinstance(closing, Closing)
    assert str(closing.error) == (
        f"an atomic batch of {size + MESSAGE_BYTES + 1:,} exceeds the limit of 1,000; "
        "raise hermod.batch_bytes to accept it"
    )
    assert json.loads(feeder.closing_bytes())["code"] == 413
