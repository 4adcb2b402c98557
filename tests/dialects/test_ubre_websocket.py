"""UBRE in WebSocket messages, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import Feeder, in_two, merged, one_by_one, rows
from kit import ubre
from kit.websocket import BINARY, CLOSE, CONTINUATION, PING, TEXT, close_frame, frame, read_frames
from polycast.dialects.session import SessionContext
from polycast.dialects.ubre.encoders import BINARY_FRAMES, JSON_FRAMES
from polycast.dialects.ubre.session import UbreWebSocketSession
from polycast.model import Limits, Reply, Subscribe
from vectors import InputVector, Row, input_vectors

SMALL = Limits(payload_bytes=24, topic_bytes=5, line_bytes=40)
DEEP = "[" * 100_000 + "]" * 100_000


def fed(parts: list[bytes], limits: Limits | None = None) -> Feeder:
    feeder = Feeder(UbreWebSocketSession(SessionContext(limits or Limits())))
    for part in parts:
        feeder.give(part)
    return feeder


def found(parts: list[bytes], limits: Limits | None = None) -> list[Row]:
    return merged(rows(fed(parts, limits).events, "ubre"))


def text(message: str) -> bytes:
    return frame(TEXT, message.encode())


def code_of(feeder: Feeder) -> int:
    [[opcode, payload, _]], _ = read_frames(feeder.closing_bytes())
    assert opcode == CLOSE
    return int.from_bytes(payload[:2], "big")


# -- the same messages as on a stream --------------------------------------------------------------------

LINES = [v for v in input_vectors() if v.role == "ubre" and v.id.startswith(("ubre/json", "ubre/requests: a"))]


def frames_of(vector: InputVector) -> list[bytes]:
    return [frame(TEXT, line) for line in vector.input.split(b"\n") if line.strip()]


def expected(vector: InputVector) -> list[Row]:
    """Responses are in frames here."""
    found: list[Row] = []
    for kind, *fields in [*vector.events, *vector.at_end]:
        if kind != "reply":
            found.append((kind, *fields))
        elif isinstance(fields[0], bytes):
            found += [("reply", frame(TEXT, line, mask=b"")) for line in fields[0].splitlines()]
    return merged(found)


@pytest.mark.parametrize("vector", LINES, ids=lambda vector: vector.id)
def test_a_line_and_a_websocket_message_mean_the_same(vector: InputVector) -> None:
    frames = frames_of(vector)
    assert found([b"".join(frames)]) == expected(vector)
    assert found(one_by_one(b"".join(frames))) == expected(vector)


def test_a_message_may_have_line_ends() -> None:
    assert found([text('\n{\n"publish"\n:\n"a",\n"body"\n:\n[\n1\n]\n}\n')]) == [
        ("message", b"a", b"[1]", b"json")
    ]


def test_fragments_are_one_message() -> None:
    message = ubre.text(publish="a", body="é").encode()
    for cut in range(len(message) + 1):
        head, tail = in_two(message, cut)
        parts = frame(TEXT, head, final=False) + frame(PING) + frame(CONTINUATION, tail)
        assert found([parts])[:1] == [("message", b"a", "é".encode(), b"text")]


def test_binary_messages() -> None:
    serve = ubre.frame("S", "a", b'{"serve":true}')
    sent = [
        ubre.frame("P", "a", b"\xff"),
        ubre.frame("P", "a"),
        serve,
        ubre.frame("U", "a"),
        ubre.frame("s", "7", b"x"),
    ]
    assert found([b"".join(frame(BINARY, each) for each in sent)]) == [
        ("message", b"a", b"\xff"),
        ("message", b"a", b"", b"none"),
        ("subscribe", b"a", b"serve"),
        ("unsubscribe", b"a"),
        ("success", b"7", b"x", b"bytes"),
    ]


def test_a_streamed_body_runs_to_the_end_of_its_message() -> None:
    streamed = [ubre.frame("P", "a", b"hello", ubre.STREAMING), ubre.frame("P", "a", b"", ubre.STREAMING)]
    assert found([frame(BINARY, each) for each in streamed]) == [
        ("message", b"a", b"hello"),
        ("message", b"a", b""),
    ]


def test_a_subscription_is_served_in_the_form_it_was_made_in() -> None:
    events = fed(
        [text('{"subscribe":"a"}'), frame(BINARY, ubre.frame("S", "a")), text('{"subscribe":"a"}')]
    ).events
    assert [event.encoder for event in events if isinstance(event, Subscribe)] == [
        JSON_FRAMES,
        BINARY_FRAMES,
        JSON_FRAMES,
    ]


def test_the_broker_subscribes_to_the_topics_of_publishes() -> None:
    events = UbreWebSocketSession(SessionContext(), ["orders", 'é"']).open()
    replies = [event.data for event in events if isinstance(event, Reply)]
    assert replies == [
        frame(TEXT, b'{"subscribe":"orders"}', mask=b""),
        frame(TEXT, '{"subscribe":"é\\""}'.encode(), mask=b""),
    ]
    assert UbreWebSocketSession(SessionContext()).open() == []


# -- close codes -----------------------------------------------------------------------------------------

BROKEN = {
    "no type": b"",
    "half a header": b"P\0\1\0\0\0",
    "c is not fail": ubre.frame("c", "a"),
    "JSON": b'{"publish":"a"}',
    "an unknown type": ubre.frame("X", "a"),
    "bytes left over": ubre.frame("P", "a", b"hello", 4),
    "a length past the end": ubre.frame("P", "a", b"hello", 6),
    "a length far past the end": ubre.frame("P", "a", b"hello", ubre.STREAMING - 1),
    "a body where there is none": ubre.frame("P", "a", b"hello", 0),
    "a name past the end": b"P\0\2\0\0\0\0a",
    "a name past the end of a streamed body": b"P\0\2\xff\xff\xff\xffa",
}


@pytest.mark.parametrize("message", BROKEN.values(), ids=BROKEN)
def test_broken_binary_closes_with_1002(message: bytes) -> None:
    feeder = fed([frame(BINARY, message) + text('{"publish":"late"}')])
    assert rows(feeder.events, "ubre") == [("closed", b"protocol")]
    assert code_of(feeder) == 1002


@pytest.mark.parametrize(
    "message", ["hello", "{", '{"publish":5}', "[]", "", '{"publish":"a"', f'{{"publish":"a","body":{DEEP}}}']
)
def test_the_tenth_message_that_cannot_be_read_closes_with_1007(message: str) -> None:
    feeder = fed([text(message) * 9 + text('{"publish":"a"}')])
    assert [kind for kind, *_ in rows(feeder.events, "ubre")] == ["refused"] * 9 + ["message"]
    feeder.give(text(message) + text('{"publish":"late"}'))
    assert [kind for kind, *_ in rows(feeder.events, "ubre")][10:] == ["refused", "closed"]
    assert code_of(feeder) == 1007


@pytest.mark.parametrize(
    "data",
    [
        text(ubre.text(publish="a", body="x" * 25)),
        text(ubre.text(publish="toolong")),
        text(ubre.text(request="a", id="toolong")),
        frame(BINARY, ubre.frame("P", "a", b"x" * 25)),
        frame(BINARY, ubre.frame("P", "a", b"x" * 25, ubre.STREAMING)),
        frame(BINARY, ubre.frame("P", "toolong")),
        frame(TEXT, b"x" * 73)[:10],
        frame(BINARY, b"x" * 73)[:10],
        frame(TEXT, b"x" * 60, final=False) + frame(CONTINUATION, b"x" * 13)[:6],
    ],
    ids=range(9),
)
def test_a_message_that_is_too_large_closes_with_1009(data: bytes) -> None:
    feeder = fed([data], SMALL)
    assert rows(feeder.events, "ubre") == [("closed", b"limit")]
    assert code_of(feeder) == 1009


@pytest.mark.parametrize(
    "message",
    [
        f'{{"publish":"a","body":{DEEP}}}',
        f'{{"publish":{DEEP}}}',
        f'{{"subscribe":"a","body":{DEEP}}}',
        f'{{"request":"a","id":{DEEP}}}',
        f'{{"request":1,"body":{{"route":"a","body":{DEEP}}}}}',
        '{"publish":"a","body":' + "[" * 1_000_000,
        '{"a":' * 100_000,
    ],
    ids=range(7),
)
def test_values_of_any_depth_are_survived(message: str) -> None:
    assert found([text(message)]) == [("refused", b"malformed JSON")]


def test_envelopes_of_any_depth_are_survived() -> None:
    envelope = ubre.frame("R", "1", b'{"route":"a","body":' + DEEP.encode() + b"}")
    fail = frame(BINARY, ubre.frame("f", "1", b'"BadRequest"'), mask=b"")
    assert found([frame(BINARY, envelope)]) == [("reply", fail)]


def test_values_of_some_depth_are_values() -> None:
    body = "[" * 500 + "]" * 500
    assert found([text(f'{{"publish":"a","body":{body}}}')]) == [("message", b"a", body.encode(), b"json")]


def test_the_peer_may_close() -> None:
    assert found([text('{"publish":"a"}') + close_frame(1000)])[0] == ("message", b"a", b"", b"none")


# -- cut anywhere ----------------------------------------------------------------------------------------

noise = st.one_of(
    st.sampled_from(ubre.WORDS).map(lambda word: frame(TEXT, word)),
    st.sampled_from(ubre.WORDS).map(lambda word: frame(BINARY, word)),
    st.sampled_from([frame(PING, b"x"), frame(TEXT, b"{", final=False), frame(CONTINUATION, b"}"), b"\x81"]),
    st.text(max_size=4).map(lambda topic: text(ubre.text(publish=topic, body=topic))),
    st.binary(max_size=6),
)


@given(st.lists(noise, max_size=8).map(b"".join))
def test_whole_equals_in_parts(sent: bytes) -> None:
    whole = found([sent], SMALL)
    assert found(one_by_one(sent), SMALL) == whole
    for cut in range(1, len(sent)):
        assert found(list(in_two(sent, cut)), SMALL) == whole
