"""The scans in C and in Python return the same for any input."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dialects.wires import publish_fanout, publish_simplest
from polycast.dialects import scan
from polycast.dialects.scan import (
    Scan,
    bodies_in_python,
    divided_in_python,
    join_frames_in_python,
    lines_in_python,
    mark_frames_in_python,
    pubs_in_python,
)

pytestmark = pytest.mark.skipif(not scan.COMPILED, reason="polycast.dialects._scan is not compiled here")

Scanner = Callable[..., Scan]

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


BAR = ord("|")
BODIES = [
    b"", b"|", b"a", b"a|", b"|a", b"||", b"a|b", b"a|b|c", b"ab|c", b"abc|d", b"\xff|x", b"a\xc3|x",
    b"\xc3\xa9|x", b"\xed\xa0\x80|x", b"\xf0\x9f\x8c\x8d|", b"a|xxxxxxxx",
]  # fmt: skip
SIZES = [b"\0" * 7 + b"\3", b"\0" * 7 + b"\xff", b"\0" * 6 + b"\1\0", b"\x80" + b"\0" * 7, b"\xff" * 8]


def sized(body: bytes, typed: bool = False) -> bytes:
    return b"\1" * typed + len(body).to_bytes(8, "big") + body


def bodies() -> st.SearchStrategy[bytes]:
    divided = st.tuples(topics, payloads).map(b"|".join)
    return st.one_of(divided, divided, st.binary(max_size=14), st.sampled_from(BODIES))


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


@given(mixtures(st.builds(publish_simplest, topics, payloads), odd_pubs), st.tuples(small, small))
@example(b"pub a 99999999999", (1, 1))
@example(b"pub a 9999999999 ", (1, 9_999_999_999))
def test_pubs(block: bytes, limits: tuple[int, int]) -> None:
    check_all_cuts(scan.pubs, pubs_in_python, block, limits)


@given(
    mixtures(st.builds(publish_fanout, topics, payloads), odd_lines), st.tuples(small, st.integers(0, 24), small)
)
def test_lines(block: bytes, limits: tuple[int, int, int]) -> None:
    check_all_cuts(scan.lines, lines_in_python, block, limits)


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


# -- bodies ----------------------------------------------------------------------------------------------


@given(st.booleans(), st.lists(st.one_of(bodies(), bodies(), noise), max_size=6), st.data())
def test_bodies(typed: bool, parts: list[bytes], data: st.DataObject) -> None:
    odd = st.sampled_from([b"\0", b"\1", b"\2", *SIZES, *[b"\1" + size for size in SIZES]])
    block = b"".join(sized(body, typed) for body in parts) + data.draw(st.one_of(st.just(b""), odd, noise))
    limits = data.draw(st.tuples(small, small, st.integers(0, 24)))
    check_all_cuts(scan.bodies, bodies_in_python, block, (typed, BAR, *limits))


def test_every_odd_body() -> None:
    for typed in (False, True):
        for one, two in product(BODIES, repeat=2):
            block = sized(one, typed) + sized(two, typed) + sized(two, typed)
            for limits in ((9, 9, 9), (1, 9, 9), (0, 9, 9), (9, 1, 9), (9, 9, 2), (3, 9, 20)):
                check_twins(scan.bodies, bodies_in_python, block, 0, (typed, BAR, *limits))


def test_every_odd_size() -> None:
    for size in SIZES:
        check_all_cuts(scan.bodies, bodies_in_python, size + b"abc", (False, BAR, 9, 9, 9))
        check_all_cuts(scan.bodies, bodies_in_python, b"\1" + size + b"abc", (True, BAR, 9, 9, 9))
        check_all_cuts(scan.bodies, bodies_in_python, b"\2" + size + b"abc", (True, BAR, 9, 9, 9))


def test_other_separators() -> None:
    block = sized(b"a|b\0c") + sized(b"\0") + sized(b"a\0|")
    for separator in (0, ord("a"), ord("b"), 127):
        check_all_cuts(scan.bodies, bodies_in_python, block, (False, separator, 9, 9, 9))


@given(st.lists(bodies(), max_size=8), small)
@example([b"", b"", b""], 9)
def test_divided(parts: list[bytes], topic_limit: int) -> None:
    ends = list(accumulate(map(len, parts)))
    starts = [end - len(part) for end, part in zip(ends, parts, strict=True)]
    block = b"".join(parts)
    for data in (block, bytearray(block)):
        one = scan.divided(data, starts, ends, BAR, topic_limit)
        two = divided_in_python(data, starts, ends, BAR, topic_limit)
        assert (*one[:2], list(one[2])) == (*two[:2], list(two[2]))


def test_bodies_as_they_are_by_default() -> None:
    limits = (False, BAR, 1024, 16 * 1024 * 1024, 1024 * 1024)
    one = sized(b"t" * 1024 + b"|" + b"x" * 100)
    block = (
        one * 20 + sized(b"t" * 1025 + b"|") * 2 + sized(b"x" * (1024 * 1024)) + sized(b"x" * (1024 * 1024 + 1))
    )
    check_twins(scan.bodies, bodies_in_python, block, 0, limits)
    many_topics = b"".join(sized(b"%d|" % (i % 7)) for i in range(1000))
    check_twins(scan.bodies, bodies_in_python, many_topics, 0, limits)


@given(st.lists(st.tuples(topics, st.binary(max_size=9).map(lambda raw: raw.replace(b"\n", b"")))), st.data())
def test_frames_of_slices(rows: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    block: bytes | bytearray = b"".join(publish_simplest(*row) for row in rows)
    if data.draw(st.booleans()):
        block = bytearray(block)
    _, _, starts, _, bounds, *_ = scan.pubs(block, 0, 100, 100)
    count = len(starts)
    edges = array("q", sorted(data.draw(st.lists(st.integers(0, count), max_size=8))))
    del edges[len(edges) // 2 * 2 :]
    assert scan.join_frames(block, bounds, edges) == join_frames_in_python(block, bounds, edges)
    arguments = block, bounds, starts, edges, ord("!")
    assert scan.mark_frames(*arguments) == mark_frames_in_python(*arguments)


def test_a_slice_outside_of_the_burst() -> None:
    for edges in ([0, 2], [-1, 1], [1, 0]):
        with pytest.raises(IndexError):
            scan.join_frames(b"frame", array("q", [0, 5]), array("q", edges))


def test_many_topics_in_turn() -> None:
    """More topics than the scan remembers, of all lengths that it remembers and longer."""
    names = [b"%d" % i * (1 + i % 40) for i in range(40_000)]
    block = b"".join(publish_simplest(name, b"x") for name in names)
    for _ in range(2):
        assert scan.pubs(block, 0, 1000, 100)[0] == names
