"""A group of bursts becomes one record batch with a row for each message, in C and in Python alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from hypothesis import given

from log.numbered_bursts import numbered, pieces, rows_of
from polycast.log.files import columns
from polycast.log.files.columns import Buffers, SourcedBurst, gather_in_python, to_batch
from polycast.log.files.format import SCHEMA
from polycast.model import Burst, Format

needs_c = pytest.mark.skipif(not columns.COMPILED, reason="polycast.log.files._columns is not compiled here")
each = pytest.mark.parametrize("gather", dict.fromkeys([gather_in_python, columns.gather]))

Gather = Callable[[list[SourcedBurst]], list[Buffers]]


def piece(*payloads: bytes) -> SourcedBurst:
    return SourcedBurst(numbered([(b"a", payload, Format.TEXT) for payload in payloads], offset=7), b"here", 1)


def one_payload_often(size: int, count: int) -> SourcedBurst:
    burst = Burst("some", bytes(size), [0] * count, [size] * count, [b"a"], [Format.BYTES], [count])
    burst.offset, burst.sequences = 0, [0]
    return SourcedBurst(burst, b"", 0)


@given(pieces())
def test_every_message_is_a_row(pieces: list[SourcedBurst]) -> None:
    batch = to_batch(pieces)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == rows_of(pieces)


@needs_c
@given(pieces())
def test_twins(pieces: list[SourcedBurst]) -> None:
    assert columns.gather(pieces) == gather_in_python(pieces)


@needs_c
def test_twins_on_many() -> None:
    topics = [b"topic %d" % (i % 7) for i in range(3000)]
    burst = numbered([(topic, bytes(i % 300), Format.BYTES) for i, topic in enumerate(topics)])
    group = [SourcedBurst(burst, b"127.0.0.1:5555", 1)] * 20
    assert columns.gather(group) == gather_in_python(group)


@each
def test_no_messages(gather: Gather) -> None:
    edges = bytes(4)
    empty = [(b"",), (edges, b""), (b"",), (b"",), (edges, b""), (edges, b""), (edges, b""), (edges, b"")]
    assert gather([]) == empty
    assert gather([SourcedBurst(Burst.of("some", []), b"x", 1)]) == empty


def test_an_empty_batch() -> None:
    assert to_batch([]).num_rows == 0


@each
def test_starts_and_ends_may_be_any_sequence(gather: Gather) -> None:
    it = piece(b"one", b"two")
    expected = gather([it])
    it.burst.starts, it.burst.ends = [0, 3], range(3, 9, 3)
    assert gather([it]) == expected


@each
@pytest.mark.parametrize("sequences", [[0], []], ids=["right", "wrong"])
def test_a_block_is_free_again_afterwards(gather: Gather, sequences: list[int]) -> None:
    it = piece(b"one", b"two")
    it.burst.block = bytearray(it.burst.block)
    it.burst.sequences = sequences
    with nullcontext() if sequences else pytest.raises(ValueError):
        gather([it])
    it.burst.block += b"grows"


@each
def test_a_column_above_2_gib_is_an_error(gather: Gather) -> None:
    mebibytes_16 = 16 * 1024 * 1024
    with pytest.raises(OverflowError, match=r"2,147,483,648 bytes in one column .* 2,147,483,647 fit"):
        gather([one_payload_often(mebibytes_16, 64), one_payload_often(mebibytes_16, 64)])


@each
@pytest.mark.parametrize(
    ("start", "end"),
    [(-1, 2), (2, 1), (0, 7), (7, 7), (2**62, 2**62)],
    ids=["before", "back", "past", "behind", "far"],
)
def test_a_payload_outside_of_its_block(gather: Gather, start: int, end: int) -> None:
    it = piece(b"one", b"two")
    it.burst.starts, it.burst.ends = [0, start], [3, end]
    with pytest.raises(ValueError, match=f"{start:,} to {end:,} in a block of 6"):
        gather([it])


@each
@pytest.mark.parametrize("run_ends", [[1], [3], []], ids=["short", "long", "none"])
def test_runs_that_do_not_fit(gather: Gather, run_ends: list[int]) -> None:
    it = piece(b"one", b"two")
    it.burst.run_ends = run_ends
    with pytest.raises(ValueError):
        gather([it])


@each
@pytest.mark.parametrize("column", ["topics", "formats", "sequences", "ends"])
def test_columns_that_are_cut_off(gather: Gather, column: str) -> None:
    it = piece(b"one", b"two")
    setattr(it.burst, column, getattr(it.burst, column)[:-1])
    with pytest.raises(ValueError):
        gather([it])
