"""The session of `hermod`: what comes in which order, and what it spares itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import Feeder, feed, merged, one_by_one, rows
from kit import hermod
from polycast.dialects.hermod import session as dialect
from polycast.dialects.hermod.headers import Header, HeaderEnd, HermodError, read_header
from polycast.dialects.hermod.session import HermodSession
from polycast.dialects.session import SessionContext
from polycast.errors import LimitError, PeerError, ProtocolError, TimeoutPeerError
from polycast.model import Ack, Burst, Closing, Event, Limits, Refused, Reply, Subscribe

BAD = "0" * 40


def events_of(data: bytes) -> list[Event]:
    return feed("hermod.pub", Limits(), [data]).events


def error_in(words: bytes) -> dict[str, object]:
    assert words.endswith(b"\n")
    found: dict[str, object] = json.loads(words)
    assert found.pop("status") == "ERROR"
    assert isinstance(found.pop("message"), str)
    return found


# -- bursts and replies ----------------------------------------------------------------------------------


def test_one_read_is_one_burst_with_one_ack_behind_it() -> None:
    sent = [hermod.message("a", b"1"), hermod.message("b", b"2", gap=b"\n"), hermod.message("b", b"3", "")]
    burst, ack = events_of(b"".join(sent))
    assert isinstance(burst, Burst) and isinstance(ack, Ack)
    assert [message.payload for message in burst.messages()] == [b"1", b"2", b"3"]
    assert ack.data == hermod.OK * 3


def test_a_refused_message_is_counted_in_its_place() -> None:
    sent = [hermod.message("a", b"1"), hermod.message("b", b"2", BAD), hermod.message("b", b"3", "")]
    before, ok, refused, behind, ack = events_of(b"".join(sent))
    assert isinstance(before, Burst) and isinstance(behind, Burst)
    assert isinstance(ok, Ack) and isinstance(ack, Ack)
    assert ok.data == hermod.OK
    assert refused == Refused("checksum does not fit")
    bad, last = ack.data.splitlines(keepends=True)
    assert error_in(bad) == {"code": 422}
    assert last == hermod.OK


def test_an_error_of_a_client_goes_to_the_log() -> None:
    [event] = events_of(b'{"status": "error", "code": 7, "message": "no\\nroom"}')
    assert event == Refused("ERROR of a client", detail=r"ERROR of a client: 7, 'no\nroom'")
    [event] = events_of(b'{"status": "ERROR"}')
    assert event == Refused("ERROR of a client", detail="ERROR of a client: missing, missing")


def test_an_error_of_a_client_is_not_repeated_without_end() -> None:
    [event] = events_of(b'{"status": "ERROR", "code": %b, "message": "%b"}' % (b"9" * 4000, b"\\u0007" * 9000))
    assert isinstance(event, Refused)
    assert len(event.detail) < 250
    assert event.detail.isprintable()


@given(st.lists(st.sampled_from(["single", "bad", "count", "stream", "topics", "status"]), max_size=12), st.data())
def test_no_reply_comes_before_its_message(kinds: list[str], data: st.DataObject) -> None:
    frames = {
        "single": hermod.message("a", b"x"),
        "bad": hermod.message("a", b"x", BAD),
        "count": hermod.count(2) + hermod.message("a", b"x") * 2,
        "stream": hermod.START + hermod.message("a", b"x") + hermod.END,
        "topics": hermod.topics("a"),
        "status": hermod.OK,
    }
    sent = b"".join(frames[kind] for kind in kinds)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=5)))
    parts = [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    published = promised = 0
    for event in feed("hermod.pub", Limits(), parts).events:
        if isinstance(event, Burst):
            published += len(event)
        elif isinstance(event, Reply | Ack):
            promised += sum(_promised(line) for line in event.data.splitlines())
        else:
            promised -= isinstance(event, Subscribe)
        assert promised <= published
    assert promised == published


def _promised(line: bytes) -> int:
    """The number of commands that a reply acknowledges; a handshake is one."""
    status = json.loads(line)
    return status.get("count", 1) if status["status"] == "OK" else 0


def test_the_reply_to_a_handshake_precedes_the_first_message() -> None:
    kinds = [type(event) for event in events_of(hermod.topics("a", "b") + hermod.message("a", b"x"))]
    assert kinds == [Subscribe, Subscribe, Reply, Burst, Ack]


def test_a_checked_checksum_is_reused_by_encoders() -> None:
    payloads = [b"1", b"2", b"\n"]
    sent = hermod.message("a", b"1") + hermod.message("a", b"2", hermod.checksum(b"2").upper())
    burst, _ = events_of(sent + hermod.message("b", b"\n", gap=b"\r\n"))
    assert isinstance(burst, Burst)
    assert burst.digests == "".join(hermod.checksum(payload) for payload in payloads).encode()


def test_an_unchecked_message_leaves_the_checksums_to_others() -> None:
    burst, _ = events_of(hermod.message("a", b"1") + hermod.message("a", b"2", ""))
    assert isinstance(burst, Burst)
    assert burst.digests is None


# -- headers in plain form and in any other --------------------------------------------------------------

topics = st.text('ab }{"\\é\n', max_size=4)
payloads = st.binary(max_size=6)
checks = st.sampled_from([None, None, "", BAD, "x"])
gaps = st.sampled_from([b"", b"", b"", b"\n", b"\r\n"])
spaces = st.sampled_from([b"", b"", b"\n", b" \r\n\t"])
messages = st.builds(hermod.message, topics, payloads, checks, gaps)


@given(st.lists(st.one_of(messages, spaces, st.sampled_from(hermod.WORDS)), max_size=8), st.booleans())
def test_a_header_means_the_same_with_and_without_the_short_cut(frames: list[bytes], required: bool) -> None:
    sent = b"".join(frames)
    limits = Limits(payload_bytes=5, topic_bytes=3, line_bytes=90)
    short = feed("hermod.pub", limits, [sent], settings={"require_checksum": required})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect, "messages", lambda block, position, *rest: ([], [], [], [], b"", position, 0))
        long = feed("hermod.pub", limits, [sent], settings={"require_checksum": required})
    assert merged(rows(short.events, "hermod")) == merged(rows(long.events, "hermod"))
    assert short.buffered == long.buffered


objects = st.recursive(
    st.one_of(st.text('"\\{}[a', max_size=5), st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text('"\\{}b', max_size=3), inner)),
    max_leaves=8,
)


@given(st.dictionaries(st.text('"\\{}', max_size=3), objects, max_size=3), st.binary(max_size=4))
def test_a_header_ends_where_its_object_ends(value: dict[str, object], behind: bytes) -> None:
    header = json.dumps(value, ensure_ascii=False).encode()
    block = b"xx" + header + behind
    assert HeaderEnd().find(block, 2, len(header)) == 2 + len(header)
    slowly = HeaderEnd()
    for size in range(1, len(header)):
        assert slowly.find(block[: 2 + size], 2, len(header)) == 0
    assert slowly.find(block, 2, len(header)) == 2 + len(header)
    with pytest.raises(LimitError):
        HeaderEnd().find(block, 2, len(header) - 1)


def test_a_header_that_drips_in_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    step = HeaderEnd._step

    def watched(self: HeaderEnd, block: bytes, at: int, stop: int) -> int:
        after = step(self, block, at, stop)
        seen.append(after - at)
        return after

    monkeypatch.setattr(HeaderEnd, "_step", watched)
    header = b'{"topic": "' + b'a\\"' * 500 + b'", "more": {"deep": [{}]}'
    feeder = feed("hermod.pub", Limits(), one_by_one(header))
    assert feeder.buffered == header
    assert sum(seen) <= len(header)


def test_a_header_is_not_read_again_for_each_piece_of_its_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def watched(block: bytes, position: int, end: int) -> Header:
        read.append(end)
        return read_header(block, position, end)

    monkeypatch.setattr(dialect, "read_header", watched)
    feed("hermod.pub", Limits(), one_by_one(hermod.message("a", b"x" * 500)))
    assert len(read) <= 2


# -- last words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HermodError(409, "x"), 409),
        (ProtocolError("x"), 400),
        (LimitError("a header", 2, 1, "limits.line_bytes"), 413),
        (TimeoutPeerError("x"), 503),
        (PeerError("x"), 400),
        (None, 503),
    ],
)
def test_closing_bytes_have_a_code(error: PeerError | None, code: int) -> None:
    assert error_in(HermodSession(SessionContext()).closing_bytes(error)) == {"code": code}


def test_closing_bytes_inside_a_batch_have_the_accepted_count() -> None:
    feeder = Feeder(HermodSession(SessionContext()))
    feeder.give(hermod.count(5) + hermod.message("a", b"1") + hermod.message("a", b"2"))
    assert error_in(feeder.session.closing_bytes(None)) == {"code": 503, "count": 2}
    feeder.give(hermod.message("a", b"3") * 3)
    assert error_in(feeder.session.closing_bytes(None)) == {"code": 503}


def test_a_batch_that_did_not_begin_has_no_count() -> None:
    feeder = feed("hermod.pub", Limits(), [b'{"batch_type": "Count", "count": -1}'])
    assert error_in(feeder.closing_bytes()) == {"code": 400}


def test_an_error_has_the_value_and_the_expectation() -> None:
    [closing] = events_of(b'{"topic": "a", "payload_size": 1.5, "checksum": ""}')
    assert isinstance(closing, Closing)
    assert str(closing.error) == "payload_size is 1.5, expected an integer, 0 or more"


def test_an_error_cuts_long_values() -> None:
    [closing] = events_of(b'{"topic": "a", "payload_size": "%b", "checksum": ""}' % (b"9" * 60_000))
    assert isinstance(closing, Closing)
    assert len(str(closing.error)) < 200


@pytest.mark.parametrize(
    "words",
    [
        b'{"topic": "a", "payload_size": %b, "checksum": ""}',
        b'{"topic": "a", "payload_size": -%b, "checksum": ""}',
        b'{"batch_type": "Count", "count": %b}{"batch_type": "Start"}',
        b'{"topics": %b}',
    ],
)
@pytest.mark.parametrize("digits", [20, 4300, 4301, 60_000])
def test_an_error_does_not_repeat_a_number_without_end(words: bytes, digits: int) -> None:
    feeder = feed("hermod.pub", Limits(), [words % (b"9" * digits)])
    assert len(feeder.closing_bytes()) < 300


def test_a_number_that_no_machine_has_is_no_trouble() -> None:
    number = b"9223372036854775808"
    window = b'{"topics": ["a"], "window": %b, "batch": %b}' % (number, number)
    acknowledgement = b'{"status": "OK", "topic": "a", "sequence": %b}' % number
    count = b'{"batch_type": "Count", "count": %b}' % number
    sent = window + acknowledgement + count + hermod.message("a", b"x")
    kinds = [row[0] for row in rows(events_of(sent), "hermod")]
    assert kinds == ["subscribe", "reply", "message"]


def test_limits_that_no_machine_has_are_no_trouble() -> None:
    feeder = feed("hermod.pub", Limits(2**80, 2**80, 2**80), [hermod.message("a", b"x")])
    assert [row[0] for row in rows(feeder.events, "hermod")] == ["message", "reply"]


@pytest.mark.parametrize("extra", [1, 2, 100])
@pytest.mark.parametrize("inside", [b"", b'{"deep": [{}]}, "more": '], ids=["flat", "nested"])
def test_a_header_that_is_too_long_is_measured_to_its_end(extra: int, inside: bytes) -> None:
    begun = b'{"topic": "a", "payload_size": 1, "checksum": "", "x": ' + inside + b'"'
    header = begun + b"x" * (200 + extra - len(begun) - 2) + b'"}'
    [closing] = feed("hermod.pub", Limits(line_bytes=200), [header + b"x" + hermod.message("a", b"x")]).events
    assert isinstance(closing, Closing)
    assert str(closing.error).startswith(f"a header of {200 + extra} exceeds the limit of 200;")


@pytest.mark.parametrize("key", ["topic", "payload_size", "checksum", "batch_type", "topics", "status"])
def test_a_deeply_nested_value_in_an_error(key: str) -> None:
    for depth in range(800, 1010):
        [closing] = events_of(b'{"%b": %b%b}' % (key.encode(), b"[" * depth, b"]" * depth))
        assert isinstance(closing, Closing) and isinstance(closing.error, HermodError)
        assert closing.error.code == 400


def test_a_header_nested_too_deep_is_an_error_like_others() -> None:
    deep = b'{"topics": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
    [closing] = events_of(deep)
    assert isinstance(closing, Closing) and isinstance(closing.error, HermodError)
    assert closing.error.code == 400
