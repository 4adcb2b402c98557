"""The scans of UBRE's publications in C and in Python return the same for any input; the session agrees."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.websocket import BINARY, TEXT, frame, read_frames
from polycast.dialects.json_bodies import INVALID, read_body
from polycast.dialects.ubre import scan as module
from polycast.dialects.ubre.messages import JsonMessage, read_json
from polycast.dialects.ubre.scan import Publications, framed_in_python, lines_in_python
from polycast.model import Format

Row = tuple[bytes, bytes, Format, bytes]
"""topic, payload, format, frame"""
Scan = Callable[[list[bytes], int, int], tuple[list[Row], int]]

LARGE = 1 << 20
DEPTH = 64
needs_c = pytest.mark.skipif(not module.COMPILED, reason="polycast.dialects.ubre._scan is not compiled here")


# -- all four of them, on the texts of messages -----------------------------------------------------------


def rows(found: Publications) -> list[Row]:
    block, topics, formats, run_ends, starts, ends, bounds, _ = found
    assert len(topics) == len(formats) == len(run_ends)
    assert all(this != following for this, following in pairwise(zip(topics, formats, strict=True)))
    runs = [run for run, (first, last) in enumerate(pairwise([0, *run_ends])) for _ in range(first, last)]
    frames = [bytes(block[first:last]) for first, last in pairwise(bounds)]
    assert len(runs) == len(starts) == len(ends) == len(frames)
    payloads = [bytes(block[start:end]) for start, end in zip(starts, ends, strict=True)]
    return [
        (topics[run], payload, formats[run], each)
        for run, payload, each in zip(runs, payloads, frames, strict=True)
    ]


def columns_of(texts: list[bytes], opcode: int = TEXT) -> tuple[bytes, array[int], array[int], bytes, array[int]]:
    """As the scan of frames returns them, with bytes before the first."""
    block, starts, ends, bounds = b"??", array("q"), array("q"), array("q", [2])
    for text in texts:
        block += frame(opcode, text, mask=b"")
        starts.append(len(block) - len(text))
        ends.append(len(block))
        bounds.append(len(block))
    return block, starts, ends, bytes([opcode]) * len(texts), bounds


def as_frames(scan: Callable[..., Publications]) -> Scan:
    def found(texts: list[bytes], topic_limit: int, payload_limit: int) -> tuple[list[Row], int]:
        taken = scan(*columns_of(texts), 0, topic_limit, payload_limit)
        return rows(taken), taken[-1]

    return found


def as_lines(scan: Callable[..., Publications]) -> Scan:
    def found(texts: list[bytes], topic_limit: int, payload_limit: int) -> tuple[list[Row], int]:
        texts = [text.replace(b"\n", b"\r") for text in texts]
        taken = scan(b"??" + b"".join(text + b"\n" for text in texts), 2, LARGE, topic_limit, payload_limit)
        return rows(taken), taken[-1]

    return found


SCANS = {"frames in Python": as_frames(framed_in_python), "lines in Python": as_lines(lines_in_python)}
if module.COMPILED:
    SCANS |= {"frames in C": as_frames(module.framed), "lines in C": as_lines(module.lines)}
each_framed = pytest.mark.parametrize("scan", dict.fromkeys([framed_in_python, module.framed]))
each_lines = pytest.mark.parametrize("scan", dict.fromkeys([lines_in_python, module.lines]))
each_scan = pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)


# -- equal results ----------------------------------------------------------------------------------------

characters = st.sampled_from([*'ab é€😀\x7f/\x00\n"\\', "long enough for eight at a time"])
strings = st.lists(characters, max_size=6).map("".join)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=6,
)
topics = st.sampled_from(["a", "a", "orders.new", "", "é", 'with "quotes"'])
bodies = st.one_of(values, strings)


def publication(topic: str, **body: Any) -> dict[str, Any]:
    return {"publish": topic, **body}


messages = st.builds(publication, topics, body=bodies) | st.builds(publication, topics)
separators = st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), ("\t,\r", " :\n ")])


@st.composite
def written(draw: st.DrawFn) -> bytes:
    message = draw(messages)
    text = json.dumps(message, ensure_ascii=draw(st.booleans()), separators=draw(separators))
    return draw(st.sampled_from(["", "", "", " ", "\r"])).encode() + text.encode()


SPLINTERS = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\x00", b"\x1f", b"\xff", b"\xc3", b"\xa9"),
    *(b"0", b"-", b"1e5", b".5", b"+", b"true", b"nul", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\\udc00"),
    *(
        b"\\u00g0",
        b"\\x",
        b'"body"',
        b'"publish"',
        b'{"publish":"a","body":',
        b"\xed\xa0\x80",
        b"\xf0\x9f\x98\x80",
    ),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message with one replaced part."""
    text = draw(written())
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(start + 4, len(text))))
    return text[:start] + draw(st.sampled_from(SPLINTERS)) + text[end:]


fragments = st.lists(st.sampled_from(SPLINTERS), max_size=8).map(b"".join)
broken = fragments.map(lambda value: b'{"publish":"a","body":%b}' % value)
texts = st.lists(st.one_of(written(), written(), damaged(), broken), max_size=8)
limits = st.sampled_from([LARGE, LARGE, 0, 1, 3, 9])


@needs_c
@given(texts, limits, limits)
@example([b'{"publish":"a","body":"\\u0000"}'], LARGE, LARGE)
@example([b'{"publish":"a","body":[1]}', b'{"publish":"a","body": [ 1 ] }'], LARGE, 3)
def test_twins(texts: list[bytes], topic_limit: int, payload_limit: int) -> None:
    for kind in ("frames", "lines"):
        in_c = SCANS[f"{kind} in C"](texts, topic_limit, payload_limit)
        assert in_c == SCANS[f"{kind} in Python"](texts, topic_limit, payload_limit)


@needs_c
@given(texts, st.binary(max_size=3))
def test_twins_on_every_cut(texts: list[bytes], rest: bytes) -> None:
    block = b"\n".join(texts) + b"\n" + rest
    for size in {*range(0, len(block), 7), len(block)}:
        for data in (block[:size], bytearray(block[:size])):
            in_c, in_python = (scan(data, 0, 60, 9, 50) for scan in (module.lines, lines_in_python))
            assert (rows(in_c), in_c[-1]) == (rows(in_python), in_python[-1])


def read(text: bytes) -> JsonMessage | None:
    try:
        return read_json(text)
    except INVALID:
        return None


@each_scan
@given(texts=texts)
def test_the_scan_finds_what_the_session_reads(scan: Scan, texts: list[bytes]) -> None:
    found, _ = scan(texts, LARGE, LARGE)
    for (topic, payload, format_, sent), text in zip(found, texts, strict=False):
        message = read(text)
        assert message is not None
        assert read_body(message.publish) == (topic, Format.TEXT)
        assert read_body(message.body) == (payload, format_)
        [out] = [each.payload for each in read_frames(sent)[0]] if sent[0] == 0x81 else [sent[:-1]]
        assert json.loads(out) == json.loads(text)
        assert out.startswith(b'{"publish":"%b"' % topic)


@each_scan
@given(st.lists(st.tuples(bodies, st.booleans(), separators), max_size=6))
def test_whatever_json_makes_of_a_body_is_found(scan: Scan, drawn: list[tuple[Any, bool, Any]]) -> None:
    texts = [
        json.dumps(publication("a", body=body), ensure_ascii=ascii_only, separators=between).encode()
        for body, ascii_only, between in drawn
    ]
    assert len(scan(texts, LARGE, LARGE)[0]) == len(texts)


# -- results of all ---------------------------------------------------------------------------------------

FOUND = {
    b'{"publish":"a","body":"text"}': (b"text", Format.TEXT),
    b'{"publish":"a","body":""}': (b"", Format.TEXT),
    b'{"publish":"a"}': (b"", Format.NONE),
    b'{"publish":"a","body":null}': (b"null", Format.JSON),
    b'{"publish":"a","body":-1.50e+07}': (b"-1.50e+07", Format.JSON),
    b'{"publish":"a","body":{"b":[{},[],"\\u00e9 \\n"]}}': (b'{"b":[{},[],"\\u00e9 \\n"]}', Format.JSON),
    b' {\t"publish" :"a", "body" : [ 1 ,"x y" ] } ': (b'[1,"x y"]', Format.JSON),
    b'{"publish":"a","body":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041"}': (b'"\\/\b\f\n\r\tA', Format.TEXT),
    b'{"publish":"a","body":"\\u00E9\\u20ac\\uD83D\\ude00"}': ("é€😀".encode(), Format.TEXT),
    '{"publish":"a","body":"é€😀"}'.encode(): ("é€😀".encode(), Format.TEXT),
}

NOT_PLAIN = [
    *(
        b"",
        b" ",
        b"{}",
        b"[]",
        b"{",
        b'{"publish":"a"',
        b'{"publish":"a"}}',
        b'{"publish":"a"}x',
        b'{"publish":5}',
    ),
    *(b'{"publish":"a",}', b'{"publish":"a","body":}', b'{"publish":"a","body":1,}', b'{"publish":"a","body"}'),
    *(b'{"publish":"a","body":1,"id":2}', b'{"body":1,"publish":"a"}', b'{"publish":"\\u0061"}', b'{"publish":a}'),
    *(
        b'{"publish":"a","body":01}',
        b'{"publish":"a","body":1.}',
        b'{"publish":"a","body":-}',
        b'{"publish":"\t"}',
    ),
    *(b'{"publish":"a","body":"\\ud800"}', b'{"publish":"a","body":["\\udc00\\ud800"]}', b'{"subscribe":"a"}'),
    *(b'{"publish":"\xff"}', b'{"publish":"a","body":"\xed\xa0\x80"}', b'{"publish":"a","body":[" \xc3 "]}'),
    *(b'{"publish":"a","body":[1 2]}', b'{"publish":"a","body":{"a"}}', b'{"publish":"a","body":[}'),
    *(b'{"publish":"a","body":tru}', b'{"publish":"a","body":"x}', b'{"publish":"a","body":"\\x"}'),
]


@each_scan
@pytest.mark.parametrize(("text", "body"), FOUND.items(), ids=range(len(FOUND)))
def test_found(scan: Scan, text: bytes, body: tuple[bytes, Format]) -> None:
    found, _ = scan([b'{"publish":"a","body":"before"}', text, b'{"publish":"b","body":17}'], LARGE, LARGE)
    assert [row[:3] for row in found] == [
        (b"a", b"before", Format.TEXT),
        (b"a", *body),
        (b"b", b"17", Format.JSON),
    ]


@each_scan
@pytest.mark.parametrize("text", NOT_PLAIN, ids=range(len(NOT_PLAIN)))
def test_whatever_is_not_plain_stops_the_scan(scan: Scan, text: bytes) -> None:
    before = b'{"publish":"a","body":"before"}'
    found, position = scan([before, text, before], LARGE, LARGE)
    assert ([row[:3] for row in found], position) == scan_of_one(scan, before)


def scan_of_one(scan: Scan, text: bytes) -> tuple[list[tuple[bytes, bytes, Format]], int]:
    found, position = scan([text], LARGE, LARGE)
    return [row[:3] for row in found], position


@each_scan
@pytest.mark.parametrize("body", [b'"12345"', b"[1, 23]", b'"1234\\n"', b"12345"])
def test_limits(scan: Scan, body: bytes) -> None:
    text = b'{"publish":"abc","body":%b}' % body
    size = len(scan([text], 3, LARGE)[0][0][1])
    assert len(scan([text], 3, size)[0]) == 1
    assert scan([text], 2, size)[0] == []
    assert scan([text], 3, size - 1)[0] == []


@each_scan
def test_depth(scan: Scan) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"[{":', b"}")):
        for depth, taken in ((DEPTH, 1), (DEPTH + 1, 0)):
            value = opening * depth + b"1" + closing * depth
            assert len(scan([b'{"publish":"a","body":%b}' % value], LARGE, LARGE)[0]) == taken
    wide = b"[%b]" % b",".join([b"[]"] * (DEPTH + 1))
    assert len(scan([b'{"publish":"a","body":%b}' % wide], LARGE, LARGE)[0]) == 1


@each_scan
@pytest.mark.parametrize("size", [0, 1, 100, 200, 70_000])
def test_sizes(scan: Scan, size: int) -> None:
    """A frame that gets shorter has another header."""
    tight = [b'{"publish":"a","body":"%b"}' % (b"x" * size), b'{"publish":"a","body":"%b\\n"}' % (b"y" * size)]
    loose = [text.replace(b",", b"," + b" " * 60) for text in tight]
    found, _ = scan(tight + loose, LARGE, LARGE)
    assert [row[1] for row in found] == [b"x" * size, b"y" * size + b"\n"] * 2
    assert [row[3] for row in found[2:]] == [row[3] for row in found[:2]]


@each_scan
def test_many(scan: Scan) -> None:
    texts = [b'{"publish":"%d","body":"%d%b"}' % (i // 3, i, b"\\n" * (i % 1000 == 999)) for i in range(3000)]
    found, _ = scan(texts, LARGE, LARGE)
    assert [row[:2] for row in found] == [
        (b"%d" % (i // 3), b"%d%b" % (i, b"\n" * (i % 1000 == 999))) for i in range(3000)
    ]


@each_framed
def test_other_opcodes_are_left(scan: Callable[..., Publications]) -> None:
    columns = columns_of([b'{"publish":"a"}'], BINARY)
    assert scan(*columns, 0, LARGE, LARGE) == (columns[0], [], [], [], (), (), (), 0)


@each_framed
def test_from_any_message_on(scan: Callable[..., Publications]) -> None:
    texts = [b'{"publish":"a","body":%d}' % i for i in range(5)]
    block, starts, ends, opcodes, bounds = columns_of(texts)
    for position in range(6):
        found = scan(block, list(starts), list(ends), opcodes, list(bounds), position, LARGE, LARGE)
        assert found[0] is block, "what is plain is not copied"
        assert [row[1] for row in rows(found)] == [b"%d" % i for i in range(position, 5)]
        assert list(found[6])[:-1] == list(bounds)[position:-1]


@each_lines
def test_lines_that_are_too_long_or_unfinished(scan: Callable[..., Publications]) -> None:
    line = b'{"publish":"a","body":1}\n'
    assert scan(line, 0, len(line) - 1, LARGE, LARGE)[-1] == len(line)
    assert scan(line, 0, len(line) - 2, LARGE, LARGE)[-1] == 0
    assert scan(line + line[:-1], 0, LARGE, LARGE, LARGE)[-1] == len(line)
    assert scan(b"", 0, LARGE, LARGE, LARGE)[-1] == 0
