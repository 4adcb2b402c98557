"""What `hermod` promises, and what it says instead where the log could not keep it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import feed
from kit import hermod
from polycast.model import Ack, Burst, Event, Limits, Refused, Reply

BAD = "0" * 40
ONE = hermod.message("a", b"1")
REASON = "the disk is full"
NOT_DURABLE = {"status": "ERROR", "code": 500, "message": f"not stored: {REASON}"}


def events_of(*parts: bytes, has_log: bool = True) -> list[Event]:
    return feed("hermod.pub", Limits(), parts, has_log=has_log).events


def acks(events: list[Event]) -> list[Ack]:
    return [event for event in events if isinstance(event, Ack)]


def statuses(data: bytes) -> list[dict[str, object]]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def taken_back(ack: Ack, durable: int = 0) -> list[dict[str, object]]:
    return statuses(ack.to_failure(REASON, durable))


# -- what is a promise -----------------------------------------------------------------------------------


def test_a_read_of_thousands_is_one_ack() -> None:
    for message in (ONE, hermod.message("a", b"1", gap=b"\n")):
        burst, ack = events_of(message * 4000)
        assert isinstance(burst, Burst) and isinstance(ack, Ack)
        assert ack.data == hermod.OK * 4000
        assert taken_back(ack) == [NOT_DURABLE] * 4000


def test_a_promise_is_the_same_without_a_log() -> None:
    """The session does not know whether there is one when it replies."""
    assert [type(event) for event in events_of(ONE, has_log=False)] == [Burst, Ack]


def test_replies_without_accepted_messages_are_no_acks() -> None:
    for text in (
        hermod.message("a", b"1", BAD),
        hermod.topics("a"),
        hermod.END,
        hermod.count(0),
        hermod.START + hermod.END,
        hermod.count(1) + hermod.message("a", b"1", BAD),
    ):
        events = events_of(text)
        assert not acks(events)
        assert any(isinstance(event, Reply) for event in events)


def test_the_failure_of_a_batch_has_the_durable_count() -> None:
    [ack] = acks(events_of(hermod.count(3) + ONE * 3))
    assert ack.data == hermod.ok(3)
    assert taken_back(ack) == [NOT_DURABLE | {"count": 0}]
    assert taken_back(ack, durable=2) == [NOT_DURABLE | {"count": 2}]


def test_a_failure_replaces_the_error_of_a_batch() -> None:
    [ack] = acks(events_of(hermod.count(3) + ONE + hermod.message("a", b"1", BAD) + ONE))
    [error] = statuses(ack.data)
    assert (error["code"], error["count"]) == (422, 2)
    assert taken_back(ack, durable=1) == [NOT_DURABLE | {"count": 1}]


# -- several in one read ---------------------------------------------------------------------------------


def test_a_refusal_turns_the_oks_into_errors_and_nothing_else() -> None:
    text = [ONE, hermod.count(2) + ONE * 2, hermod.END, hermod.count(0), ONE * 2]
    burst, ack = events_of(b"".join(text))
    assert isinstance(burst, Burst) and isinstance(ack, Ack)
    assert ack.data == hermod.OK + hermod.ok(2) + hermod.ok(0) * 2 + hermod.OK * 2
    nothing = {"status": "OK", "count": 0}
    batch = NOT_DURABLE | {"count": 0}
    assert taken_back(ack) == [NOT_DURABLE, batch, nothing, nothing, NOT_DURABLE, NOT_DURABLE]


def test_the_error_of_a_bad_message_is_unchanged_by_a_failure() -> None:
    before, ok, refused, behind, ack = events_of(ONE + hermod.message("a", b"2", BAD) + ONE)
    assert isinstance(before, Burst) and isinstance(behind, Burst) and isinstance(refused, Refused)
    assert isinstance(ok, Ack) and isinstance(ack, Ack)
    assert taken_back(ok) == [NOT_DURABLE]
    bad, _ = statuses(ack.data)
    assert bad["code"] == 422
    assert taken_back(ack) == [bad, NOT_DURABLE]


def test_a_batch_of_two_reads_has_its_own_reply() -> None:
    """A loss of the first read's messages must not affect replies to later messages."""
    first, rest, ack, more, others = events_of(hermod.count(3) + ONE * 2, ONE + ONE * 2)
    assert isinstance(first, Burst) and isinstance(rest, Burst) and isinstance(more, Burst)
    assert [len(first), len(rest), len(more)] == [2, 1, 2]
    assert isinstance(ack, Ack) and isinstance(others, Ack)
    assert ack.data == hermod.ok(3)
    assert taken_back(ack, durable=1) == [NOT_DURABLE | {"count": 1}]
    assert others.data == hermod.OK * 2


kinds = st.sampled_from(
    [
        ONE,
        ONE * 3,
        hermod.message("b", b"2", gap=b"\n"),
        hermod.message("b", b"2", BAD),
        hermod.count(2) + ONE * 2,
        hermod.count(2) + ONE + hermod.message("b", b"2", BAD),
        hermod.count(0),
        hermod.START + ONE * 2 + hermod.END,
        hermod.END,
        hermod.topics("a"),
    ]
)


@given(st.lists(kinds, max_size=12), st.data())
def test_a_promise_comes_behind_its_messages_and_can_be_taken_back(text: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(text)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=5)))
    parts = [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    published = promised = 0
    for event in events_of(*parts):
        if isinstance(event, Burst):
            published += len(event)
        if isinstance(event, Reply):
            assert all(not status.get("count") for status in statuses(event.data))
        if isinstance(event, Ack):
            reported, instead = statuses(event.data), taken_back(event)
            assert len(reported) == len(instead)
            promised += sum(_promised(status) for status in reported)
            assert sum(_promised(status) for status in instead) == 0
            assert promised <= published
    assert promised == published


def _promised(status: dict[str, object]) -> int:
    count = status.get("count", 1 if status["status"] == "OK" else 0)
    assert isinstance(count, int)
    return count
