"""Large payloads are sent from where they are, unless that would keep much more in memory than is sent."""

from __future__ import annotations

import pytest

from polycast.dialects.framing import SHARE_TO_PIN
from polycast.dialects.hermod.encoders import ENCODER, OFFSET_ENCODER, SCATTERED_BYTES, HermodEncoder
from polycast.model import Burst, Format

COUNT = 8


def of_payloads(*sizes: int) -> Burst:
    burst = Burst.of("hermod", [(b"a", bytes([65 + i]) * size, Format.BYTES) for i, size in enumerate(sizes)])
    burst.sequences, burst.offset, burst.micros = [0], 0, 1
    return burst


def is_copied(encoder: HermodEncoder, burst: Burst, start: int, stop: int) -> bool:
    views = [block for block in encoder.encode(burst, [(start, stop)]).blocks if isinstance(block, memoryview)]
    return not any(view.obj is burst.block for view in views)


@pytest.mark.parametrize("encoder", [ENCODER, OFFSET_ENCODER])
def test_the_same_bytes_in_one_block_or_in_many(encoder: HermodEncoder) -> None:
    large = of_payloads(*[SCATTERED_BYTES] * COUNT)
    found = encoder.encode(large, [(0, 3), (5, COUNT)])
    parts = [encoder.encode(large, [(i, i + 1)]).blocks for i in (0, 1, 2, 5, 6, 7)]
    assert [len(part) for part in parts] == [1] * len(parts)  # too small a part of the block
    assert b"".join(found.blocks) == b"".join(part[0] for part in parts)
    assert (found.size, len(found.blocks)) == (len(b"".join(found.blocks)), 2 * len(parts))


def test_large_payloads_are_not_copied() -> None:
    assert not is_copied(ENCODER, of_payloads(*[SCATTERED_BYTES] * COUNT), 0, COUNT)
    assert is_copied(ENCODER, of_payloads(*[SCATTERED_BYTES - 1] * COUNT), 0, COUNT)


def test_a_small_part_of_a_block_is_copied() -> None:
    burst = of_payloads(*[SCATTERED_BYTES] * COUNT)
    assert is_copied(ENCODER, burst, 0, COUNT // SHARE_TO_PIN - 1)
    assert not is_copied(ENCODER, burst, 0, COUNT // SHARE_TO_PIN)


def test_small_payloads_among_large_ones_are_copied() -> None:
    burst = of_payloads(1, 1, 1, COUNT * SCATTERED_BYTES)
    assert is_copied(ENCODER, burst, 0, 3)
    assert not is_copied(ENCODER, burst, 0, 4)
