"""The scans in C and in Python, held equal on everything."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dialects.wires import publish_fanout, publish_simplest
from polycast.dialects import scan
from polycast.dialects.scan import Scan, lines_in_python, pubs_in_python

pytestmark = pytest.mark.skipif(not scan.COMPILED, reason="polycast.dialects._scan is not compiled here")

Scanner = Callable[..., Scan]
many = settings(max_examples=250, deadline=None)

topics = st.text("abé!\t", min_size=1, max_size=7).map(str.encode)
payloads = st.one_of(st.binary(max_size=14), st.just(b"x\npub a 1 y"), st.just(b"\r"))
small = st.integers(0, 14)


def odd_pub(topic: bytes, digits: bytes, gap: bytes, payload: bytes, end: bytes) -> bytes:
    return b"pub " + topic + b" " + digits + gap + payload + end


def odd_line(channel: bytes, gap: bytes, message: bytes, end: bytes) -> bytes:
    return channel + gap + message + end


DIGITS = [b"0", b"1", b"01", b"00", b"2", b"12", b"0000000001", b"9999999999", b"00000000001", b"-1", b""]
GAPS = [b" ", b"", b"  ", b"\n", b"\r\n"]
ENDS = [b"\n", b"\r\n", b"\n\n", b"", b"x"]
NAMES = [b"", b"a", b"ab", b"a\rb", b"a!b"]

odd_pubs = st.builds(
    odd_pub,
    st.one_of(topics, st.sampled_from(NAMES)),
    st.sampled_from(DIGITS),
    st.sampled_from(GAPS),
    st.binary(max_size=6),
    st.sampled_from(ENDS),
)
odd_lines = st.builds(
    odd_line,
    st.one_of(topics, st.sampled_from(NAMES)),
    st.sampled_from(GAPS),
    st.binary(max_size=14),
    st.sampled_from(ENDS),
)
noise = st.one_of(
    st.binary(max_size=6), st.sampled_from([b"p", b"pu", b"pub", b"pub ", b"sub x\n", b"\n", b" ", b"\r"])
)


def mixtures(plain: st.SearchStrategy[bytes], odd: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(st.one_of(plain, plain, plain, odd, noise), max_size=8).map(b"".join)


def columns(found: Scan) -> tuple[object, ...]:
    topics_, run_ends, starts, ends, bounds, position, need, unfinished = found
    return topics_, run_ends, list(starts), list(ends), list(bounds), position, need, bool(unfinished)


def check_twins(one: Scanner, two: Scanner, block: bytes, position: int, limits: tuple[int, ...]) -> None:
    for data in (block, bytearray(block)):
        assert columns(one(data, position, *limits)) == columns(two(data, position, *limits))


def check_all_cuts(one: Scanner, two: Scanner, block: bytes, limits: tuple[int, ...]) -> None:
    for size in range(len(block) + 1):
        check_twins(one, two, block[:size], 0, limits)
    for position in range(len(block) + 1):
        check_twins(one, two, block, position, limits)


@many
@given(mixtures(st.builds(publish_simplest, topics, payloads), odd_pubs), st.tuples(small, small))
@example(b"pub a 99999999999", (1, 1))
@example(b"pub a 9999999999 ", (1, 9_999_999_999))
def test_pubs(block: bytes, limits: tuple[int, int]) -> None:
    check_all_cuts(scan.pubs, pubs_in_python, block, limits)


@many
@given(
    mixtures(st.builds(publish_fanout, topics, payloads), odd_lines), st.tuples(small, st.integers(0, 24), small)
)
def test_lines(block: bytes, limits: tuple[int, int, int]) -> None:
    check_all_cuts(scan.lines, lines_in_python, block, limits)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.tuples(small, small, small))
def test_noise(block: bytes, limits: tuple[int, int, int]) -> None:
    check_all_cuts(scan.pubs, pubs_in_python, block, limits[:2])
    check_all_cuts(scan.lines, lines_in_python, block, limits)


def test_every_odd_pub() -> None:
    for parts in product(NAMES, DIGITS, GAPS, [b"", b"x", b"xx"], ENDS):
        check_all_cuts(scan.pubs, pubs_in_python, odd_pub(*parts), (2, 2))


def test_every_odd_line() -> None:
    for parts in product(NAMES, GAPS, [b"", b"x", b"\r", b" ", b"!", b"xxx"], ENDS):
        for limits in ((2, 9, 9), (1, 9, 9), (2, 4, 9), (2, 9, 1)):
            check_all_cuts(scan.lines, lines_in_python, odd_line(*parts), limits)


def test_more_frames_than_room_was_made_for() -> None:
    frames = b"".join(publish_simplest(b"ab"[i % 2 :][:1], b"") for i in range(1000))
    check_twins(scan.pubs, pubs_in_python, frames, 0, (9, 9))
    lines = b"".join(publish_fanout(b"ab"[i % 3 // 2 :][:1], b"") for i in range(1000))
    check_twins(scan.lines, lines_in_python, lines, 0, (9, 9, 9))


def test_limits_as_they_are_by_default() -> None:
    frames = publish_simplest(b"t" * 1024, b"x" * 1000) * 20 + publish_simplest(b"t" * 1025, b"")
    check_twins(scan.pubs, pubs_in_python, frames, 0, (1024, 16 * 1024 * 1024))
    lines = publish_fanout(b"t" * 1024, b"x" * 1000) * 20 + publish_fanout(b"t" * 1025, b"")
    check_twins(scan.lines, lines_in_python, lines, 0, (1024, 64 * 1024, 16 * 1024 * 1024))
