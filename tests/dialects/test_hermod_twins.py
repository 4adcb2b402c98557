"""The two versions of hermod's leaves do the same, on plain messages and on damaged ones."""

from __future__ import annotations

import json
from array import array
from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.dialects.hermod.scan import (
    COMPILED,
    Messages,
    frames,
    frames_in_python,
    messages,
    messages_in_python,
    scattered_frames,
    scattered_frames_in_python,
)
from polycast.model import Burst, Format

pytestmark = pytest.mark.skipif(
    not COMPILED, reason="the leaves are not compiled: pip install -e . with a C compiler"
)

SPACE = st.sampled_from(["", "", " ", "\n", "\t\r\n "])
TOPIC = st.sampled_from(["a", "b", "", "plain topic", "}{", 'q\\"', "ü", "x" * 40])
SUM = st.sampled_from(["right", "right", "right", "", "wrong", "UPPER", "short"])


@st.composite
def message(draw: st.DrawFn) -> bytes:
    payload = draw(st.binary(max_size=12))
    right = sha1(payload, usedforsecurity=False).hexdigest()
    checksum = {"right": right, "": "", "wrong": "0" * 40, "UPPER": right.upper(), "short": right[:39]}[draw(SUM)]
    size = draw(
        st.sampled_from([str(len(payload))] * 4 + ["007", "1.0", "99999999999", "-1", str(len(payload) + 1)])
    )
    tokens = ["{", '"topic"', ":", f'"{draw(TOPIC)}"', ",", '"payload_size"', ":", size, ","]
    tokens += ['"checksum"', ":", f'"{checksum}"', "}"]
    return "".join(draw(SPACE) + token for token in tokens).encode() + payload


def plain(found: Messages) -> tuple[object, ...]:
    topics, run_ends, starts, ends, *rest = found
    return topics, run_ends, list(starts), list(ends), rest


@given(st.lists(message(), max_size=8).map(b"".join), st.integers(0, 3), st.integers(0, 9), st.data())
def test_messages(block: bytes, position: int, most: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(block)))
    limits = data.draw(
        st.sampled_from([(1024, 1 << 20, 1 << 16), (3, 1 << 20, 1 << 16), (99, 5, 99), (99, 99, 80)])
    )
    unchecked = data.draw(st.booleans())
    for part in (block, block[:cut], bytearray(block[cut:])):
        begin = min(position, len(part))
        arguments = (part, begin, most, *limits, unchecked)
        assert plain(messages(*arguments)) == plain(messages_in_python(*arguments))


@given(st.lists(st.tuples(TOPIC, st.binary(max_size=9)), min_size=1, max_size=9), st.data())
def test_frames(messages: list[tuple[str, bytes]], data: st.DataObject) -> None:
    burst = Burst.of("hermod", [(topic.encode(), payload, Format.BYTES) for topic, payload in messages])
    starts, ends = array("q", burst.starts), array("q", burst.ends)
    digests = "".join(sha1(payload, usedforsecurity=False).hexdigest() for _, payload in messages).encode()
    sequences = [data.draw(st.sampled_from([0, 8, 98, 10**18])) for _ in burst.topics]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(messages)), min_size=2, max_size=6)))
    edges = array("q", cuts[: len(cuts) // 2 * 2])
    arguments = (burst.block, starts, ends, digests, burst.topics, burst.run_ends, sequences, edges, quote)
    assert frames(*arguments) == frames_in_python(*arguments)
    times = array("q", data.draw(st.lists(st.integers(0, 2**62), min_size=len(messages), max_size=len(messages))))
    placed = (*arguments, data.draw(st.sampled_from([0, 9, 2**62])), times)
    assert frames(*placed) == frames_in_python(*placed)
    assert scattered_frames(*arguments) == scattered_frames_in_python(*arguments)
    assert b"".join(scattered_frames(*placed)) == frames(*placed)


def quote(topic: bytes) -> bytes:
    return json.dumps(topic.decode(), ensure_ascii=False).encode()
