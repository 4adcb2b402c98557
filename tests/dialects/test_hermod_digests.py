"""The sha1 of payloads of all lengths, whoever computes it: hashlib is right."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import sha1

import pytest

from polycast.dialects.hermod import scan
from polycast.dialects.hermod.encoders import digests_of
from polycast.model import Block, Burst, Format

BLOCK_BYTES = 64
SHORT_BYTES = 65536
SIZES = [*range(4 * BLOCK_BYTES + 1), SHORT_BYTES - 1, SHORT_BYTES, SHORT_BYTES + 1, 100_000]
PAYLOADS = [bytes((7 * i + size) % 256 for i in range(size)) for size in SIZES]
EXPECTED = [sha1(payload, usedforsecurity=False).hexdigest().encode() for payload in PAYLOADS]

Digests = Callable[[Block, Sequence[int], Sequence[int]], bytes]

each = pytest.mark.parametrize("digests", dict.fromkeys([scan.digests_in_python, scan.digests]))
each_scan = pytest.mark.parametrize("messages", dict.fromkeys([scan.messages_in_python, scan.messages]))


@each
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_every_length(digests: Digests, kind: type[bytes] | type[bytearray]) -> None:
    burst = Burst.of("some", [(b"a", payload, Format.BYTES) for payload in PAYLOADS])
    assert digests(kind(burst.block), array("q", burst.starts), array("q", burst.ends)) == b"".join(EXPECTED)


@each
def test_nothing(digests: Digests) -> None:
    assert digests(b"", array("q"), array("q")) == b""
    assert digests(b"", array("q", [0]), array("q", [0])) == EXPECTED[0]


def test_of_a_burst() -> None:
    burst = Burst("some", b"abc", [0, 1], (2, 3), [b"a"], [Format.BYTES], [2])
    expected = b"".join(sha1(payload, usedforsecurity=False).hexdigest().encode() for payload in (b"ab", b"bc"))
    assert digests_of(burst) == expected
    assert burst.digests == expected


@each_scan
@pytest.mark.parametrize("size", [0, 55, 56, 64, 100, SHORT_BYTES, SHORT_BYTES + 1])
def test_a_wrong_digit_anywhere_is_found(messages: Callable[..., scan.Messages], size: int) -> None:
    payload = bytes(size)
    right = sha1(payload, usedforsecurity=False).hexdigest()
    wrong = [right[:i] + ("1" if right[i] == "0" else "0") + right[i + 1 :] for i in range(len(right))]
    for checksum in (right, *wrong):
        header = b'{"topic": "a", "payload_size": %d, "checksum": "%b"}' % (size, checksum.encode())
        [*_, digests, _, _] = messages(header + payload, 0, 9, 1024, 1 << 20, 1 << 16, False)
        assert digests == (right.encode() if checksum == right else b"")


@each
def test_two_at_a_time_of_all_lengths(digests: Digests) -> None:
    """The C version computes two digests at once: the first of a pair may be shorter, or longer."""
    sizes = [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 200, 1000, SHORT_BYTES, SHORT_BYTES + 1]
    payloads = [bytes(i % 251 for i in range(size)) for one in sizes for two in sizes for size in (one, two)]
    burst = Burst.of("some", [(b"a", payload, Format.BYTES) for payload in payloads])
    expected = "".join(sha1(payload, usedforsecurity=False).hexdigest() for payload in payloads)
    assert digests(burst.block, array("q", burst.starts), array("q", burst.ends)) == expected.encode()


@each_scan
@pytest.mark.parametrize("wrong", range(5))
def test_messages_end_at_a_wrong_checksum(messages: Callable[..., scan.Messages], wrong: int) -> None:
    frames = [
        b'{"topic": "a", "payload_size": 1, "checksum": "%b"}%d'
        % (b"0" * 40 if i == wrong else scan.sha1_of(b"%d" % i), i)
        for i in range(5)
    ]
    [_, run_ends, starts, _, _, position, _] = messages(b"".join(frames), 0, 9, 1024, 1 << 20, 1 << 16, False)
    assert (len(starts), run_ends, position) == (wrong, [wrong] if wrong else [], sum(map(len, frames[:wrong])))


@pytest.mark.skipif(not scan.COMPILED, reason="the leaves are not compiled")
@pytest.mark.parametrize(("start", "end"), [(0, 5000), (-1, 2), (3, 2)])
def test_payloads_outside_of_their_block_are_refused(start: int, end: int) -> None:
    columns = (b"abc", array("q", [start]), array("q", [end]))
    with pytest.raises(ValueError, match="in a block of 3 bytes"):
        scan.digests(*columns)
    with pytest.raises(ValueError, match="in a block of 3 bytes"):
        scan.frames(*columns, bytes(40), [b"a"], [1], [0], array("q", [0, 1]), bytes)


@pytest.mark.skipif(not scan.COMPILED, reason="the leaves are not compiled")
@pytest.mark.parametrize("edges", [[0, 2], [1, 0], [-1, 1]])
def test_slices_outside_of_their_burst_are_refused(edges: list[int]) -> None:
    with pytest.raises(ValueError, match="of 1 messages"):
        scan.frames(
            b"abc", array("q", [0]), array("q", [3]), bytes(40), [b"a"], [1], [0], array("q", edges), bytes
        )
