"""The two versions of hermod's leaves do the same, on plain messages and on damaged ones."""

from __future__ import annotations

from array import array
from hashlib import sha1
from itertools import pairwise

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
)

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
    topics, run_ends, starts, ends, digests, position = found
    return topics, run_ends, list(starts), list(ends), digests, position


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


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=9), st.sampled_from([0, 8, 98, 10**18]), st.data())
def test_frames(payloads: list[bytes], sequence: int, data: st.DataObject) -> None:
    edges = [0]
    for payload in payloads:
        edges.append(edges[-1] + len(payload))
    starts, ends = array("q", edges[:-1]), array("q", edges[1:])
    digests = [sha1(payload, usedforsecurity=False).hexdigest().encode() for payload in payloads]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(payloads)), min_size=2, max_size=4)))
    heads = [b'{"topic": "%d", "sequence": ' % place for place in cuts]
    runs = [(head, *stretch, sequence) for head, stretch in zip(heads, pairwise(cuts), strict=False)]
    arguments = (b"".join(payloads), starts, ends, digests, runs)
    assert frames(*arguments) == frames_in_python(*arguments)
    times = array("q", data.draw(st.lists(st.integers(0, 2**62), min_size=len(payloads), max_size=len(payloads))))
    placed = (*arguments, data.draw(st.sampled_from([0, 9, 2**62])), times)
    assert frames(*placed) == frames_in_python(*placed)
