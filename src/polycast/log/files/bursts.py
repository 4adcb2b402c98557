"""From a record batch back to bursts, so that replayed messages are encoded like live ones.

A run ends where the topic or the format changes, or where the sequence skips. `stretches` finds rows without gaps
and their runs; `spans` widens the edges of Arrow to starts and ends. The C versions (`_columns.pyx`) take 20 ns
per message of one topic and 90 ns if every message has another topic; Python takes 800 ns. A test checks that both
are equal.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from polycast.log.files.format import SCHEMA
from polycast.model import Burst, Format

DIALECT = "log"
"""The dialect of replayed bursts: their rows may have come from several dialects."""
FORMATS = {format_.encode(): format_ for format_ in Format}
UNKNOWN = Format.BYTES
"""Stands for formats of later versions."""


class Texts(NamedTuple):
    """A string or binary column: value i is data[edges[i]:edges[i + 1]]."""

    edges: memoryview
    data: memoryview


ContiguousRows = tuple[int, list[bytes], list[Format], list[int], list[int]]
"""Rows with consecutive offsets: the first row, and their topics, formats, run_ends and sequences."""


def to_bursts(batch: pa.RecordBatch) -> list[Burst]:
    """One burst for each range of consecutive offsets. Needs only the columns that a burst has."""
    if not batch.num_rows:
        return []
    offsets, payloads = _numbers(batch, "offset"), _texts(batch, "payload")
    found = stretches(offsets, _texts(batch, "topic"), _numbers(batch, "sequence"), _texts(batch, "format"))
    times = _numbers(batch, "time") if "time" in batch.schema.names else ()
    return [_to_burst(stretch, offsets, payloads, times) for stretch in found]


def _to_burst(stretch: ContiguousRows, offsets: memoryview, payloads: Texts, times: Sequence[int]) -> Burst:
    first, topics, formats, run_ends, sequences = stretch
    edges = payloads.edges[first : first + run_ends[-1] + 1]
    block = bytes(payloads.data[edges[0] : edges[-1]])
    starts, ends = spans(edges)
    return Burst(
        DIALECT, block, starts, ends, topics, formats, run_ends, sequences=sequences, offset=offsets[first],
        times=times[first : first + run_ends[-1]],
    )  # fmt: skip


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """With the type of the schema, which the compiled functions rely on."""
    return batch.column(name).cast(SCHEMA.field(name).type)


def _numbers(batch: pa.RecordBatch, name: str) -> memoryview:
    column = _column(batch, name)
    return memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + len(column)]


def _texts(batch: pa.RecordBatch, name: str) -> Texts:
    column = _column(batch, name)
    _, edges, data = column.buffers()
    used = memoryview(edges).cast("i")[column.offset : column.offset + len(column) + 1]
    return Texts(used, memoryview(data or b"").cast("B"))


# -- compiled functions, in Python -----------------------------------------------------------------------


def stretches_in_python(
    offsets: memoryview, topics: Texts, sequences: memoryview, formats: Texts
) -> list[ContiguousRows]:
    found: list[ContiguousRows] = []
    before: tuple[int, bytes, int, bytes] | None = None
    for row, now in enumerate(zip(offsets, _values(topics), sequences, _values(formats), strict=True)):
        offset, topic, sequence, format_ = now
        if before is None or offset != before[0] + 1:
            found.append((row, [], [], [], []))
        first, its_topics, its_formats, run_ends, its_sequences = found[-1]
        if row == first or before != (offset - 1, topic, sequence - 1, format_):
            its_topics.append(topic)
            its_formats.append(FORMATS.get(format_, UNKNOWN))
            its_sequences.append(sequence)
            run_ends.append(0)
        run_ends[-1] = row + 1 - first
        before = now
    return found


def _values(texts: Texts) -> list[bytes]:
    edges = texts.edges.tolist()
    data = bytes(texts.data)
    return [data[begin:end] for begin, end in pairwise(edges)]


def spans_in_python(edges: memoryview) -> tuple[array[int], array[int]]:
    """The starts and ends of the values between the edges, from the first edge on. ValueError: an edge falls."""
    base = edges[0]
    moved = array("q", [edge - base for edge in edges])
    if any(map(int.__gt__, moved, moved[1:])):
        raise ValueError("a value ends before it begins")
    return moved[:-1], moved[1:]


try:
    from polycast.log.files import _columns
except ImportError:
    COMPILED = False
    stretches, spans = stretches_in_python, spans_in_python
else:
    COMPILED = True
    stretches, spans = _columns.stretches, _columns.spans
