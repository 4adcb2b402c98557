"""A group of bursts becomes one record batch with a row for each message, in C and in Python alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.numbered_bursts import numbered, pieces, rows_of, to_batch
from polycast.log.files import columns
from polycast.log.files.columns import PackedColumns, Packer, PackerInPython, SourcedBurst
from polycast.log.files.format import NOTHING_BEFORE, SCHEMA, read_header
from polycast.log.files.heads import HASH_ADDRESS, header_text, open_head, padded
from polycast.model import Burst, Format

needs_c = pytest.mark.skipif(not columns.COMPILED, reason="polycast.log.files._columns is not compiled here")
each = pytest.mark.parametrize("pack", [PackerInPython().pack, columns.new_packer().pack])

Pack = Callable[[list[SourcedBurst]], PackedColumns]


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


def unpacked(packed: PackedColumns) -> tuple[int, list[bytes]]:
    body, found = bytes(packed.body), []
    for size in packed.sizes:
        found.append(_unpacked(body[:size]))
        assert not body[size : padded(size)].strip(b"\0")
        body = body[padded(size) :]
    assert not body
    return packed.rows, found


def _unpacked(data: bytes) -> bytes:
    plain, body = int.from_bytes(data[:8], "little", signed=True), data[8:]
    return body if plain < 0 else pa.decompress(body, plain, "lz4", asbytes=True) if data else b""


@needs_c
@given(pieces())
def test_twins(pieces: list[SourcedBurst]) -> None:
    assert unpacked(columns.new_packer().pack(pieces)) == unpacked(PackerInPython().pack(pieces))


def message_of(packer: Packer, pieces: list[SourcedBurst]) -> bytes:
    """With its checksum verified."""
    rows = sum(len(piece.burst) for piece in pieces)
    head = open_head(header_text(NOTHING_BEFORE, 5, rows, {}), rows, seed=7)
    message, checksum = packer.pack_message(pieces, head, 8)
    data = memoryview(bytes(message))
    header = read_header(data, 0, 7)
    assert (header.size, header.count, header.checksum) == (len(data), rows, checksum)
    return bytes(data)


@needs_c
@given(pieces())
def test_a_message_is_the_same_with_and_without_the_hash_function_in_c(pieces: list[SourcedBurst]) -> None:
    class WithoutHash(PackerInPython):
        pack = staticmethod(columns.new_packer().pack)

    assert HASH_ADDRESS
    assert message_of(columns.new_packer(), pieces) == message_of(WithoutHash(), pieces)


@needs_c
def test_a_head_with_wrong_positions_is_refused() -> None:
    group = [piece(b"one")]
    head = open_head(header_text(NOTHING_BEFORE, 0, 1, {}), 1, seed=7)
    end = len(head.data)
    changes: list[dict[str, Any]] = [
        {"checksum": end - 31}, {"size": end - 11}, {"buffers": end - 300}, {"body_size": -1},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(ValueError, match="outside of the head"):
            columns.new_packer().pack_message(group, head._replace(**change), 8)


@needs_c
@pytest.mark.parametrize("offset", [0, 250, 65_500, 2**32 - 3000, 2**40])
def test_twins_on_many(offset: int) -> None:
    topics = [b"topic %d" % (i // 3 % 7) for i in range(6000)]
    burst = numbered([(topic, bytes(i % 300), Format.BYTES) for i, topic in enumerate(topics)], offset)
    group = [SourcedBurst(burst, b"127.0.0.1:5555", 1)] * 20
    assert unpacked(columns.new_packer().pack(group)) == unpacked(PackerInPython().pack(group))


@needs_c
@given(st.binary(max_size=300), st.integers(1, 300))
def test_a_text_of_any_size(text: bytes, count: int) -> None:
    burst = numbered([(text.hex().encode(), b"", Format.TEXT)] * count)
    group = [SourcedBurst(burst, text.hex().encode(), 1)]
    assert unpacked(columns.new_packer().pack(group)) == unpacked(PackerInPython().pack(group))


@each
def test_a_column_of_4_mib_is_not_packed(pack: Pack) -> None:
    burst = numbered([(b"t" * 60_000, b"", Format.TEXT)] * 100)
    assert unpacked(pack([SourcedBurst(burst, b"", 1)]))[1][2] == b"t" * 6_000_000


@each
def test_what_repeats_takes_no_space(pack: Pack) -> None:
    """A message of 100 bytes takes at most 130 bytes in a group."""
    burst = numbered([(b"topic0001", bytes(100), Format.TEXT)] * 10_000, 123_456_789)
    packed = pack([SourcedBurst(burst, b"simplest tcp://127.0.0.1:51234", 1_700_000_000_000_000)])
    assert len(packed.body) <= 129 * 10_000


@each
def test_no_messages(pack: Pack) -> None:
    edges = bytes(4)
    empty = [b"", edges, b"", b"", b"", edges, b"", edges, b"", edges, b"", edges, b""]
    assert unpacked(pack([])) == (0, empty)
    assert unpacked(pack([SourcedBurst(Burst.of("some", []), b"x", 1)])) == (0, empty)


def test_an_empty_batch() -> None:
    assert to_batch([]).num_rows == 0


@each
def test_starts_and_ends_may_be_any_sequence(pack: Pack) -> None:
    it = piece(b"one", b"two")
    expected = unpacked(pack([it]))
    it.burst.starts, it.burst.ends = [0, 3], range(3, 9, 3)
    assert unpacked(pack([it])) == expected


@each
@pytest.mark.parametrize("sequences", [[0], []], ids=["right", "wrong"])
def test_a_block_is_free_again_afterwards(pack: Pack, sequences: list[int]) -> None:
    it = piece(b"one", b"two")
    it.burst.block = bytearray(it.burst.block)
    it.burst.sequences = sequences
    with nullcontext() if sequences else pytest.raises(ValueError):
        pack([it])
    it.burst.block += b"grows"


@each
def test_a_column_above_2_gib_is_an_error(pack: Pack) -> None:
    mebibytes_16 = 16 * 1024 * 1024
    with pytest.raises(OverflowError, match=r"2,147,483,648 bytes in one column .* 2,147,483,647 fit"):
        pack([one_payload_often(mebibytes_16, 64), one_payload_often(mebibytes_16, 64)])


@each
@pytest.mark.parametrize(
    ("start", "end"),
    [(-1, 2), (2, 1), (0, 7), (7, 7), (2**62, 2**62)],
    ids=["before", "back", "past", "behind", "far"],
)
def test_a_payload_outside_of_its_block(pack: Pack, start: int, end: int) -> None:
    it = piece(b"one", b"two")
    it.burst.starts, it.burst.ends = [0, start], [3, end]
    with pytest.raises(ValueError, match=f"{start:,} to {end:,} in a block of 6"):
        pack([it])


@each
@pytest.mark.parametrize("run_ends", [[1], [3], []], ids=["short", "long", "none"])
def test_runs_that_do_not_fit(pack: Pack, run_ends: list[int]) -> None:
    it = piece(b"one", b"two")
    it.burst.run_ends = run_ends
    with pytest.raises(ValueError):
        pack([it])


@each
@pytest.mark.parametrize("column", ["topics", "formats", "sequences", "ends"])
def test_columns_that_are_cut_off(pack: Pack, column: str) -> None:
    it = piece(b"one", b"two")
    setattr(it.burst, column, getattr(it.burst, column)[:-1])
    with pytest.raises(ValueError):
        pack([it])
