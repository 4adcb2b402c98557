"""Stored rows become bursts again: the same messages, sequences and offsets."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.numbered_bursts import Row, numbered, pieces, rows_of, to_batch
from polycast.dialects.hermod.encoders import ENCODER
from polycast.log.files import bursts
from polycast.log.files.bursts import spans_in_python, stretches_in_python, to_bursts
from polycast.log.files.columns import SourcedBurst
from polycast.model import Burst, Format

needs_c = pytest.mark.skipif(not bursts.COMPILED, reason="polycast.log.files._columns is not compiled here")

STORED = ("offset", "topic", "sequence", "format", "payload")


def to_rows(bursts: list[Burst]) -> list[Row]:
    """The columns of a burst, row by row."""
    return [
        {key: row[key] for key in STORED} for burst in bursts for row in rows_of([SourcedBurst(burst, b"", 0)])
    ]  # fmt: skip


@given(pieces())
def test_there_and_back(pieces: list[SourcedBurst]) -> None:
    assert to_rows(to_bursts(to_batch(pieces))) == to_rows([piece.burst for piece in pieces])


@given(pieces())
def test_bursts_have_the_time_of_each_message(pieces: list[SourcedBurst]) -> None:
    written = [piece.micros for piece in pieces for _ in range(len(piece.burst))]
    assert [time for burst in to_bursts(to_batch(pieces)) for time in burst.times] == written


@given(pieces(min_size=1), st.data())
def test_a_part_of_a_batch(pieces: list[SourcedBurst], data: st.DataObject) -> None:
    batch = to_batch(pieces)
    start = data.draw(st.integers(0, batch.num_rows))
    stop = data.draw(st.integers(start, batch.num_rows))
    bursts = to_bursts(batch.slice(start, stop - start))
    assert to_rows(bursts) == to_rows([piece.burst for piece in pieces])[start:stop]
    assert sum([len(burst.block) for burst in bursts]) == sum([len(row["payload"]) for row in to_rows(bursts)])


@given(pieces())
def test_a_burst_ends_only_where_offsets_are_missing(pieces: list[SourcedBurst]) -> None:
    for one, two in pairwise(to_bursts(to_batch(pieces))):
        assert one.offset + len(one) != two.offset


@given(pieces())
def test_a_run_ends_only_where_something_changes(pieces: list[SourcedBurst]) -> None:
    for burst in to_bursts(to_batch(pieces)):
        runs = list(burst.runs())
        for (one, first, last), (two, _, _) in pairwise(runs):
            same = (burst.topics[one], burst.formats[one]) == (burst.topics[two], burst.formats[two])
            assert not same or burst.sequences[one] + last - first != burst.sequences[two]


@given(pieces())
def test_encoders_accept_replayed_bursts(pieces: list[SourcedBurst]) -> None:
    live = [ENCODER.encode(piece.burst, [(0, len(piece.burst))]) for piece in pieces]
    stored = [ENCODER.encode(burst, [(0, len(burst))]) for burst in to_bursts(to_batch(pieces))]
    assert b"".join(b"".join(each.blocks) for each in stored) == b"".join(b"".join(each.blocks) for each in live)


@needs_c
@given(pieces(min_size=1), st.data())
def test_twins(pieces: list[SourcedBurst], data: st.DataObject) -> None:
    batch = to_batch(pieces)
    start = data.draw(st.integers(0, batch.num_rows - 1))
    part = batch.slice(start)
    offsets, sequences = (bursts._numbers(part, name) for name in ("offset", "sequence"))
    topics, formats, payloads = (bursts._texts(part, name) for name in ("topic", "format", "payload"))
    arguments = (offsets, topics, sequences, formats)
    assert bursts.stretches(*arguments) == stretches_in_python(*arguments)
    assert bursts.spans(payloads.edges) == spans_in_python(payloads.edges)


def test_in_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    burst = numbered([(b"a", b"1", Format.TEXT), (b"a", b"2", Format.TEXT), (b"b", b"", Format.NONE)], offset=5)
    monkeypatch.setattr(bursts, "stretches", stretches_in_python)
    monkeypatch.setattr(bursts, "spans", spans_in_python)
    assert to_rows(to_bursts(to_batch([SourcedBurst(burst, b"", 0)]))) == to_rows([burst])


def test_no_messages() -> None:
    assert to_bursts(to_batch([])) == []


def test_from_parquet(tmp_path: Path) -> None:
    burst = numbered([(b"topic %d" % (i % 3), b"%d" % i, Format.JSON) for i in range(5000)], offset=1)
    table = pa.Table.from_batches([to_batch([SourcedBurst(burst, b"", 0)])])
    pa.parquet.write_table(table, tmp_path / "sealed.parquet", row_group_size=1000, compression="zstd")
    file = pa.parquet.ParquetFile(tmp_path / "sealed.parquet")
    bursts = [each for batch in file.iter_batches(700, columns=list(STORED)) for each in to_bursts(batch)]
    file.close()
    assert to_rows(bursts) == to_rows([burst])


@pytest.mark.parametrize(
    "other", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_other_kinds_of_text(other: Any) -> None:
    burst = numbered([(b"a", b"1", Format.TEXT), (b"b", b"2", Format.TEXT)])
    batch = to_batch([SourcedBurst(burst, b"", 0)])
    at = batch.schema.get_field_index("topic")
    changed = batch.set_column(at, "topic", batch.column("topic").cast(other))
    assert to_rows(to_bursts(changed)) == to_rows([burst])


def test_an_unknown_format_is_bytes() -> None:
    batch = to_batch([SourcedBurst(numbered([(b"a", b"1", Format.TEXT), (b"a", b"2", Format.JSON)]), b"", 0)])
    at = batch.schema.get_field_index("format")
    [burst] = to_bursts(batch.set_column(at, "format", pa.array(["cbor", "json"])))
    assert burst.formats == [Format.BYTES, Format.JSON]


@pytest.mark.parametrize("spans", dict.fromkeys([spans_in_python, bursts.spans]))
def test_falling_edges(spans: Callable[[memoryview], object]) -> None:
    with pytest.raises(ValueError, match="a value ends before it begins"):
        spans(memoryview(array("i", [0, 5, 4, 9])))
