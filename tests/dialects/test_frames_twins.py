"""The scan of WebSocket frames in C and in Python return the same for any input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.websocket import BINARY, CLOSE, CONTINUATION, PING, TEXT, frame, masked
from polycast.dialects.web import frames as module
from polycast.dialects.web.frames import FrameScan, frames_in_python, mask_in_python

Scanner = Callable[[bytes, int, bool, int], FrameScan]

TWINS = [pytest.param(frames_in_python, id="python")]
if module.COMPILED:
    TWINS.append(pytest.param(module.frames, id="c"))
each_twin = pytest.mark.parametrize("scan", TWINS)
needs_c = pytest.mark.skipif(not module.COMPILED, reason="polycast.dialects.web._frames is not compiled here")

masks = st.sampled_from([b"", b"\x00\x00\x00\x00", b"\x37\xfa\x21\x3d", b"\xff\x01\x80\x7f"])
payloads = st.one_of(st.binary(max_size=20), st.integers(120, 140).map(lambda size: b"\x5a" * size))
plain = st.builds(frame, st.sampled_from([TEXT, BINARY]), payloads, st.just(True), masks)
odd = st.builds(
    frame,
    st.sampled_from([CONTINUATION, TEXT, BINARY, 3, CLOSE, PING, 15]),
    payloads,
    st.booleans(),
    masks,
    st.sampled_from([0, 0, 0x40, 0x10]),
)
LONG_WINDED = [
    b"\x82\xfe\x00\x05",
    b"\x82\xff" + bytes(7) + b"\x05",
    b"\x82\xff" + b"\xff" * 8,
    b"\x81\x7e\x00\x7d",
]
noise = st.one_of(st.binary(max_size=6), st.sampled_from(LONG_WINDED))
blocks = st.lists(st.one_of(plain, plain, plain, odd, noise), max_size=6).map(b"".join)


def columns(found: FrameScan) -> tuple[object, ...]:
    block, starts, ends, bounds, opcodes, *rest = found
    return bytes(block), list(starts), list(ends), list(bounds), opcodes, *rest


def check_twins(block: bytes, position: int, is_masked: bool, limit: int) -> None:
    for data in (block, bytearray(block)):
        found = module.frames(data, position, is_masked, limit)
        assert columns(found) == columns(frames_in_python(data, position, is_masked, limit))


@needs_c
@given(blocks, st.booleans(), st.sampled_from([0, 1, 19, 125, 126, 127, 1 << 20]))
@example(b"\x82\xff" + b"\xff" * 12, True, 1 << 62)
def test_every_cut(block: bytes, is_masked: bool, limit: int) -> None:
    for size in range(len(block) + 1):
        check_twins(block[:size], 0, is_masked, limit)
    for position in range(len(block) + 1):
        check_twins(block, position, is_masked, limit)


@needs_c
@pytest.mark.parametrize("is_masked", [True, False])
def test_every_pair_of_first_bytes(is_masked: bool) -> None:
    for first in range(256):
        for second in (0, 1, 125, 126, 127, 128, 129, 253, 254, 255):
            check_twins(bytes([first, second]) + bytes(range(20)), 0, is_masked, 1 << 20)


@needs_c
@given(st.binary(max_size=70), st.binary(min_size=4, max_size=4))
def test_masks(data: bytes, key: bytes) -> None:
    assert module.mask(data, key) == mask_in_python(data, key) == masked(data, key)
    assert module.mask(bytearray(data), bytearray(key)) == masked(data, key)


# -- results of both -------------------------------------------------------------------------------------


@each_twin
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, 70_000])
def test_lengths(scan: Scanner, size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    sent = frame(BINARY, payload) + frame(TEXT, b"next")
    block, starts, ends, bounds, opcodes, position, need, unfinished = scan(sent, 0, True, 70_000)
    assert bytes(block) == frame(BINARY, payload, mask=b"") + frame(TEXT, b"next", mask=b"")
    assert [bytes(block[start:end]) for start, end in zip(starts, ends, strict=True)] == [payload, b"next"]
    assert list(bounds) == [0, len(frame(BINARY, payload, mask=b"")), len(block)]
    assert (opcodes, position, need, unfinished) == (bytes([BINARY, TEXT]), len(sent), 0, True)


@each_twin
def test_without_masks_the_block_is_the_block(scan: Scanner) -> None:
    sent = frame(TEXT, b"abc", mask=b"") * 2
    block, starts, ends, bounds, opcodes, position, _, _ = scan(b"??" + sent, 2, False, 9)
    assert block == b"??" + sent
    assert (list(starts), list(ends), list(bounds)) == ([4, 9], [7, 12], [2, 7, 12])
    assert (opcodes, position) == (b"\1\1", 12)


@each_twin
def test_an_unfinished_frame_gives_its_length(scan: Scanner) -> None:
    sent = frame(BINARY, b"x" * 300)
    for size in range(len(sent)):
        *_, opcodes, position, need, unfinished = scan(sent[:size], 0, True, 300)
        assert (opcodes, position, unfinished) == (b"", 0, True)
        assert need == (len(sent) if size >= 8 else 0)


@each_twin
@pytest.mark.parametrize(
    "second",
    [
        frame(PING),
        frame(CLOSE),
        frame(CONTINUATION, b"x"),
        frame(TEXT, b"x", final=False),
        frame(TEXT, b"x", reserved=0x40),
        frame(TEXT, b"x", mask=b""),
        frame(TEXT, b"x" * 301),
        b"\x82\xfe\x00\x01" + bytes(5),
        b"\x82\xff" + bytes(7) + b"\x7e" + bytes(130),
    ],
    ids=lambda data: data[:4].hex(),
)
def test_whatever_is_not_plain_is_left_where_it_is(scan: Scanner, second: bytes) -> None:
    first = frame(TEXT, b"ok")
    *_, opcodes, position, need, unfinished = scan(first + second, 0, True, 300)
    assert (opcodes, position, need, unfinished) == (bytes([TEXT]), len(first), 0, False)


@each_twin
def test_many(scan: Scanner) -> None:
    sent = b"".join(frame(BINARY, b"%d" % i) for i in range(3000))
    block, starts, ends, bounds, opcodes, position, *_ = scan(sent, 0, True, 300)
    assert len(opcodes) == len(starts) == len(ends) == len(bounds) - 1 == 3000
    assert bytes(block[starts[2999] : ends[2999]]) == b"2999"
    assert position == len(sent)
