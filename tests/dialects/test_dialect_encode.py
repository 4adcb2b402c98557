"""Encoders: conversion, slices, and ownership of memory."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import feed, number
from dialects.wires import READERS, SEEN, delivered, numbered, publish_fanout, publish_simplest
from polycast.dialects.fanout import session as fanout
from polycast.dialects.hermod import encoders as hermod_encoders
from polycast.dialects.nanomsg import encoders as nanomsg_encoders
from polycast.dialects.session import SessionContext
from polycast.dialects.simplest import session as simplest
from polycast.dialects.ubre import encoders as ubre_encoders
from polycast.model import Burst, Encoder, Format, Limits, Slices

ENCODERS: dict[str, Encoder] = {
    encoder.name: encoder
    for encoder in (simplest.ENCODER, fanout.ENCODER, hermod_encoders.ENCODER, ubre_encoders.JSON_LINES)
} | {"nanomsg": nanomsg_encoders.encoder_of("tcp", "|")}
Messages = list[tuple[bytes, bytes]]
T = TypeVar("T")

each_encoder = pytest.mark.parametrize("dialect", ENCODERS)

topics = st.text("ab é!%\r\n/", min_size=1, max_size=5).map(str.encode)
payloads = st.one_of(st.binary(max_size=8), st.sampled_from([b"\n", b"a\nb\n", b"x\r", b"!", b"\\n"]))
messages = st.lists(st.tuples(topics, payloads), min_size=1, max_size=12)
plain_topics = st.text("abé/", min_size=1, max_size=2).map(str.encode)
plain_payloads = st.text("xy! \r", max_size=6).map(lambda text: text.rstrip("\r").encode())
plain_messages = st.lists(st.tuples(plain_topics, plain_payloads), min_size=1, max_size=12)


def burst_of(rows: Messages, dialect: str = "another") -> Burst:
    burst = Burst.of(dialect, [(topic, payload, Format.BYTES) for topic, payload in rows])
    number([burst])
    return burst


@st.composite
def slices_of(draw: st.DrawFn, count: int) -> Slices:
    """Disjoint slices in ascending order."""
    edges = sorted(draw(st.sets(st.integers(0, count), min_size=2, max_size=6)))
    return list(zip(edges[::2], edges[1::2], strict=False))


def chosen(rows: list[T], slices: Slices) -> list[T]:
    return [row for start, stop in slices for row in rows[start:stop]]


def encode(dialect: str, burst: Burst, slices: Slices) -> bytes:
    encoded = ENCODERS[dialect].encode(burst, slices)
    joined = b"".join(encoded.blocks)
    assert encoded.size == len(joined)
    return joined


# -- conversion ------------------------------------------------------------------------------------------


@each_encoder
@given(rows=messages, data=st.data())
def test_a_stranger_reads_the_messages_back(dialect: str, rows: Messages, data: st.DataObject) -> None:
    slices = data.draw(slices_of(len(rows)))
    expected = [SEEN[dialect](*row) for row in chosen(rows, slices)]
    assert READERS[dialect](encode(dialect, burst_of(rows), slices)) == expected


@each_encoder
@given(rows=messages, data=st.data())
def test_only_line_feeds_towards_fanout_are_lossy(dialect: str, rows: Messages, data: st.DataObject) -> None:
    slices = data.draw(slices_of(len(rows)))
    changed = [row for row in chosen(rows, slices) if SEEN[dialect](*row)[1] != row[1]]
    assert ENCODERS[dialect].encode(burst_of(rows), slices).lossy == len(changed)


@each_encoder
def test_a_dialect_of_the_same_name_without_bounds_is_converted_too(dialect: str) -> None:
    burst = burst_of([(b"a b", b"x")], dialect)
    assert READERS[dialect](encode(dialect, burst, [(0, 1)])) == [SEEN[dialect](b"a b", b"x")]


def test_lines_of_a_controller_are_not_passed_through_to_simplest() -> None:
    [burst] = feed("fanout.controller", Limits(), [b"a hello\nb x\n"]).events
    assert isinstance(burst, Burst)
    assert encode("simplest", burst, [(0, 2)]) == b"pub a 5 hello\npub b 1 x\n"


def test_frames_of_simplest_are_not_passed_through_to_fanout() -> None:
    [burst] = feed("simplest", Limits(), [b"pub a!b 3 x\ny\npub b 1 x\n"]).events
    assert isinstance(burst, Burst)
    assert encode("fanout", burst, [(0, 2)]) == b"a%21b!x\\ny\nb!x\n"


# -- pass-through ----------------------------------------------------------------------------------------

PLAIN = {"simplest": ("simplest", publish_simplest), "fanout": ("fanout.controller", publish_fanout)}
"""The dialects whose frames are sent unchanged, with their publishers."""

each_native = pytest.mark.parametrize("dialect", PLAIN)


def plain_burst(dialect: str, rows: Messages, before: bytes = b"", behind: bytes = b"") -> Burst:
    """A burst of plain frames within a larger block."""
    role, publish = PLAIN[dialect]
    block = before + b"".join(publish(*row) for row in rows) + behind
    bursts = [event for event in feed(role, Limits(), [block]).events if isinstance(event, Burst)]
    [burst] = [burst for burst in bursts if len(burst) == len(rows)]
    assert burst.bounds is not None
    return burst


@each_native
@given(rows=plain_messages, data=st.data())
def test_verbatim_slices_are_the_encoded_form(dialect: str, rows: Messages, data: st.DataObject) -> None:
    burst = plain_burst(dialect, rows, before=b"passed-over\n", behind=b"half")
    slices = data.draw(slices_of(len(rows)))
    expected = delivered(dialect, chosen(numbered(rows), slices))
    assert encode(dialect, burst, slices) == expected
    assert encode(dialect, burst_of(rows), slices) == expected


@each_native
@given(rows=plain_messages, data=st.data())
def test_verbatim_slices_of_a_cut_burst(dialect: str, rows: Messages, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    burst = plain_burst(dialect, rows, before=b"passed-over\n").cut(start, stop)
    slices = data.draw(slices_of(stop - start))
    expected = delivered(dialect, chosen(numbered(rows[start:stop]), slices))
    assert encode(dialect, burst, slices) == expected


@each_native
def test_encoding_leaves_the_block_alone(dialect: str) -> None:
    burst = plain_burst(dialect, [(b"a", b"1"), (b"b", b"2")])
    before = bytes(burst.block)
    first, second = encode(dialect, burst, [(0, 2)]), encode(dialect, burst, [(0, 2)])
    assert first == second
    assert burst.block == before


@each_native
def test_renamed_frames_are_not_sent_as_they_came(dialect: str) -> None:
    burst = plain_burst(dialect, [(b"a", b"1"), (b"a", b"2"), (b"b", b"3")])
    renamed = burst.rename([b"x y", b"z"])
    expected = [SEEN[dialect](*row) for row in [(b"x y", b"1"), (b"x y", b"2"), (b"z", b"3")]]
    assert READERS[dialect](encode(dialect, renamed, [(0, 3)])) == expected


# -- ownership of memory ---------------------------------------------------------------------------------


def test_a_small_slice_does_not_keep_the_block_alive() -> None:
    burst = plain_burst("simplest", [(b"a", b"x" * 100)] * 100)
    [block] = simplest.ENCODER.encode(burst, [(3, 4)]).blocks
    assert not isinstance(block, memoryview)
    assert len(block) < 120


def test_a_large_slice_is_shared() -> None:
    burst = plain_burst("simplest", [(b"a", b"x" * 100)] * 100)
    for slices in ([(0, 100)], [(10, 90)]):
        [block] = simplest.ENCODER.encode(burst, slices).blocks
        assert isinstance(block, memoryview)
        assert block.obj is burst.block


def test_a_frame_that_was_assembled_in_place_is_shared() -> None:
    session = simplest.SimplestSession(SessionContext())
    block = bytearray(publish_simplest(b"a", b"x" * 200_000))
    [burst] = session.receive(block, 0.0).events
    assert isinstance(burst, Burst)
    [sent] = simplest.ENCODER.encode(burst, [(0, 1)]).blocks
    assert isinstance(sent, memoryview)
    assert sent.obj is block


def test_several_slices_do_not_keep_the_block_alive() -> None:
    burst = plain_burst("simplest", [(b"a", b"x" * 100)] * 100)
    blocks = simplest.ENCODER.encode(burst, [(0, 1), (50, 51)]).blocks
    assert not any(isinstance(block, memoryview) for block in blocks)
