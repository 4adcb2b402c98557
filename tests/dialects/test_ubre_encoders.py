"""UBRE's four encoders: JSON and binary, on a stream and in WebSocket messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import feed
from kit import ubre
from kit.websocket import BINARY, TEXT, frame, read_frames
from polycast.dialects.session import SessionContext
from polycast.dialects.ubre.encoders import BINARY_FRAMES, BINARY_STREAM, JSON_FRAMES, JSON_LINES
from polycast.dialects.ubre.session import UbreWebSocketSession
from polycast.model import Burst, Encoder, Format, Limits, Slices

JSON_ROWS: list[tuple[bytes, Format, bytes]] = [
    (b"hello", Format.TEXT, b',"body":"hello"'),
    ('é"\\\n\x00\x7f/'.encode(), Format.TEXT, ',"body":"é\\"\\\\\\n\\u0000\x7f/"'.encode()),
    (b"", Format.TEXT, b',"body":""'),
    (b"\xff", Format.TEXT, b',"body":{"$base64":"/w=="}'),
    (b'{"a":[1,2.50]}', Format.JSON, b',"body":{"a":[1,2.50]}'),
    (b'{ "a" :\n[ 1 , 2 ] }', Format.JSON, b',"body":{"a":[1,2]}'),
    (b"null", Format.JSON, b',"body":null'),
    (b"", Format.NONE, b""),
    (b"hello", Format.BYTES, b',"body":"hello"'),
    (b"null", Format.BYTES, b',"body":"null"'),
    (b"", Format.BYTES, b',"body":""'),
    (b"\xff\x00", Format.BYTES, b',"body":{"$base64":"/wA="}'),
]

NO_JSON = [
    b"",
    b"{",
    b"1 2",
    b'1}\n{"publish":"b","body":2',
    b"nul",
    b"01",
    b'["\xff"]',
    b'["\\ud800"]',
    b"[" * 100_000,
]


def encode(encoder: Encoder, burst: Burst, slices: Slices | None = None) -> bytes:
    encoded = encoder.encode(burst, slices or [(0, len(burst))])
    joined = b"".join(encoded.blocks)
    assert encoded.size == len(joined)
    return joined


def one(payload: bytes, format_: Format, dialect: str = "another") -> Burst:
    return Burst.of(dialect, [(b"a", payload, format_)])


# -- JSON ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("payload", "format_", "member"), JSON_ROWS)
def test_json(payload: bytes, format_: Format, member: bytes) -> None:
    message = b'{"publish":"a"%b}' % member
    assert encode(JSON_LINES, one(payload, format_)) == message + b"\n"
    assert encode(JSON_FRAMES, one(payload, format_)) == frame(TEXT, message, mask=b"")


@pytest.mark.parametrize("payload", NO_JSON, ids=range(len(NO_JSON)))
def test_invalid_json_is_encoded_as_bytes(payload: bytes) -> None:
    assert ubre.read_lines(encode(JSON_LINES, one(payload, Format.JSON))) == [(b"a", payload)]


@pytest.mark.parametrize("size", [0, 1, 60, 200, 70_000])
def test_frames_of_every_size(size: int) -> None:
    [[opcode, payload, final]], rest = read_frames(encode(JSON_FRAMES, one(b"x" * size, Format.TEXT)))
    assert (opcode, final, rest) == (TEXT, True, b"")
    assert json.loads(payload) == {"publish": "a", "body": "x" * size}


# -- binary ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", Format)
def test_binary_is_as_it_is(format_: Format) -> None:
    burst = Burst.of("another", [("é ".encode(), b'{"a": \xff}\n', format_), (b"", b"", format_)])
    first, second = ubre.frame("P", "é ", b'{"a": \xff}\n'), ubre.frame("P", "")
    assert encode(BINARY_STREAM, burst) == first + second
    assert encode(BINARY_FRAMES, burst) == frame(BINARY, first, mask=b"") + frame(BINARY, second, mask=b"")


def test_the_longest_name() -> None:
    """No binary subscriber can have a longer topic: its subscription carries the topic."""
    longest = b"n" * 65_535
    burst = Burst.of("another", [(longest, b"x", Format.BYTES), (longest + b"n", b"y", Format.BYTES)])
    encoded = BINARY_STREAM.encode(burst, [(0, 2)])
    assert b"".join(encoded.blocks) == ubre.frame("P", longest, b"x")
    assert encoded.lossy == 1


# -- all formats -----------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
writers: st.SearchStrategy[Callable[[Any], str]] = st.sampled_from([
    lambda message: json.dumps(message, ensure_ascii=False, separators=(",", ":")),
    lambda message: json.dumps(message, separators=(",", ":")),
    lambda message: json.dumps(message, ensure_ascii=False),
    lambda message: json.dumps(message, separators=(" ,\t", "  : ")),
])  # fmt: skip
publications = st.lists(st.tuples(names, values, writers), min_size=1, max_size=8)
Publications = list[tuple[str, Any, Callable[[Any], str]]]


def written(published: Publications) -> list[bytes]:
    return [write({"publish": topic, "body": body}).encode() for topic, body, write in published]


def expected(published: Publications) -> list[dict[str, Any]]:
    return [{"publish": topic, "body": body} for topic, body, _ in published]


def check_messages(bursts: list[Burst], published: Publications) -> None:
    found = [message for burst in bursts for message in burst.messages()]
    assert [message.topic for message in found] == [topic for topic, _, _ in published]
    for message, (_, body, _) in zip(found, published, strict=True):
        if isinstance(body, str):
            assert (message.payload, message.format) == (body.encode(), Format.TEXT)
        else:
            assert (json.loads(message.payload), message.format) == (body, Format.JSON)
            assert message.payload == compacted(message.payload)


def over_websocket(texts: list[bytes]) -> list[Burst]:
    received = UbreWebSocketSession(SessionContext()).receive(b"".join(frame(TEXT, text) for text in texts), 0.0)
    bursts = [event for event in received.events if isinstance(event, Burst)]
    assert bursts == received.events
    return bursts


@given(publications)
def test_lines_are_passed_on(published: Publications) -> None:
    limits = Limits()
    bursts = feed("ubre", limits, [b"\n".join(written(published)) + b"\n"]).events
    assert all(isinstance(burst, Burst) for burst in bursts)
    check_messages([burst for burst in bursts if isinstance(burst, Burst)], published)
    lines = b"".join(encode(JSON_LINES, burst) for burst in bursts if isinstance(burst, Burst))
    assert [json.loads(each) for each in lines.splitlines()] == expected(published)
    assert all(line == compacted(line) for line in lines.splitlines())


def compacted(line: bytes) -> bytes:
    """Without white space between tokens."""
    parts = line.replace(b"\\\\", b"\0\0").replace(b'\\"', b"\1\1").split(b'"')
    parts[::2] = [b"".join(part.split()) for part in parts[::2]]
    return b'"'.join(parts).replace(b"\1\1", b'\\"').replace(b"\0\0", b"\\\\")


@given(publications)
def test_websocket_messages_are_passed_on(published: Publications) -> None:
    received = UbreWebSocketSession(SessionContext()).receive(
        b"".join(frame(TEXT, text) for text in written(published)), 0.0
    )
    bursts = [burst for burst in received.events if isinstance(burst, Burst)]
    assert bursts == received.events
    check_messages(bursts, published)
    for encoder in (JSON_FRAMES, JSON_LINES):
        out = b"".join(encode(encoder, burst) for burst in bursts)
        texts = [each.payload for each in read_frames(out)[0]] if encoder is JSON_FRAMES else out.splitlines()
        assert [json.loads(text) for text in texts] == expected(published)


@given(publications, st.data())
def test_slices(published: Publications, data: st.DataObject) -> None:
    """With and without pass-through."""
    received = UbreWebSocketSession(SessionContext()).receive(
        b"".join(frame(TEXT, text) for text in written(published)), 0.0
    )
    messages = iter(expected(published))
    for burst in received.events:
        assert isinstance(burst, Burst)
        rows = [next(messages) for _ in range(len(burst))]
        edges = sorted(data.draw(st.sets(st.integers(0, len(burst)), min_size=2, max_size=4)))
        slices = list(zip(edges[::2], edges[1::2], strict=False))
        frames, _ = read_frames(encode(JSON_FRAMES, burst, slices))
        wanted = [row for start, stop in slices for row in rows[start:stop]]
        assert [json.loads(each.payload) for each in frames] == wanted


# -- pass-through ----------------------------------------------------------------------------------------

PLAIN = [
    ubre.text(publish="orders", body="hello"),
    ubre.text(publish="orders", body={"n": 1, "s": "x y", "é": ["é"]}),
    ubre.text(publish="é", body=""),
    ubre.text(publish="", body=[]),
    ubre.text(publish="a b", body=1.5),
]


def plain_burst(texts: list[str]) -> Burst:
    [burst] = (
        UbreWebSocketSession(SessionContext())
        .receive(b"".join(frame(TEXT, text.encode()) for text in texts), 0.0)
        .events
    )
    assert isinstance(burst, Burst)
    return burst


def test_plain_publications_go_out_as_they_came() -> None:
    burst = plain_burst(PLAIN)
    assert burst.native is JSON_FRAMES
    assert encode(JSON_FRAMES, burst) == b"".join(frame(TEXT, text.encode(), mask=b"") for text in PLAIN)
    assert encode(JSON_LINES, burst) == b"".join(text.encode() + b"\n" for text in PLAIN)


def test_plain_lines_go_out_as_they_came() -> None:
    lines = b"".join(text.encode() + b"\n" for text in PLAIN)
    [burst] = feed("ubre", Limits(), [lines]).events
    assert isinstance(burst, Burst) and burst.native is JSON_LINES
    assert encode(JSON_LINES, burst) == lines


OTHERWISE = [
    ' { "publish" : "orders" , "body" : "hello" } ',
    '{"publish":"orders","body":"\\u00e9\\n"}',
    '{"publish": "orders", "body": {"n": [1, 2]}}',
    '{ "publish":"orders"}',
]


def test_publications_that_are_written_otherwise_are_of_the_same_burst() -> None:
    """Sent in canonical form, except for escapes, which stay."""
    burst = plain_burst([PLAIN[0], *OTHERWISE, PLAIN[0]])
    assert [message.payload for message in burst.messages()] == [
        *(b"hello", b"hello", "é\n".encode(), b'{"n":[1,2]}', b"", b"hello")
    ]
    assert burst.native is JSON_FRAMES
    sent = [
        *(PLAIN[0], PLAIN[0], OTHERWISE[1]),
        *('{"publish":"orders","body":{"n":[1,2]}}', '{"publish":"orders"}', PLAIN[0]),
    ]
    assert encode(JSON_FRAMES, burst) == b"".join(frame(TEXT, text.encode(), mask=b"") for text in sent)
    in_binary = b"".join(ubre.frame("P", "orders", message.payload) for message in burst.messages())
    assert encode(BINARY_STREAM, burst) == in_binary


def test_renamed_publications_do_not() -> None:
    renamed = plain_burst(PLAIN[:2]).rename([b'"', b"b"])
    lines = encode(JSON_LINES, renamed)
    assert lines == b'{"publish":"\\"","body":"hello"}\n' + PLAIN[1].replace("orders", "b").encode() + b"\n"
