"""From a record batch back to bursts, so that what was kept goes out as it would have gone out live.

Runs are found again where topic and format stay and the sequence counts up. `stretches` finds them, and `spans`
widens Arrow's edges to starts and ends. The C versions (`_columns.pyx`) take 20 ns a message with one topic and
90 with another topic each time, where Python takes 800. A test holds the two equal.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from polycast.log.files.format import SCHEMA
from polycast.model import Burst, Format

DIALECT = "log"
"""What the bursts say they came from: the rows of one may have come from several."""
FORMATS = {format_.encode(): format_ for format_ in Format}
UNKNOWN = Format.BYTES
"""What a format is to us that a later version wrote: any payload is bytes."""


class Texts(NamedTuple):
    """A string or binary column: value i is data[edges[i]:edges[i + 1]]."""

    edges: memoryview
    data: memoryview


ContiguousRows = tuple[int, list[bytes], list[Format], list[int], list[int]]
"""The first of some rows whose offsets have no gap between them; their topics, formats, run_ends, sequences."""


def to_bursts(batch: pa.RecordBatch) -> list[Burst]:
    """One burst, or more where offsets are missing in between. It needs no columns but those a burst has."""
    if not batch.num_rows:
        return []
    offsets, payloads = _numbers(batch, "offset"), _texts(batch, "payload")
    found = stretches(offsets, _texts(batch, "topic"), _numbers(batch, "sequence"), _texts(batch, "format"))
    return [_to_burst(stretch, offsets, payloads) for stretch in found]


def _to_burst(stretch: ContiguousRows, offsets: memoryview, payloads: Texts) -> Burst:
    first, topics, formats, run_ends, sequences = stretch
    edges = payloads.edges[first : first + run_ends[-1] + 1]
    block = bytes(payloads.data[edges[0] : edges[-1]])
    starts, ends = spans(edges)
    return Burst(
        DIALECT, block, starts, ends, topics, formats, run_ends, sequences=sequences, offset=offsets[first]
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """As the log's schema has it: the leaves trust that."""
    return batch.column(name).cast(SCHEMA.field(name).type)


def _numbers(batch: pa.RecordBatch, name: str) -> memoryview:
    column = _column(batch, name)
    return memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + len(column)]


def _texts(batch: pa.RecordBatch, name: str) -> Texts:
    column = _column(batch, name)
    _, edges, data = column.buffers()
    kept = memoryview(edges).cast("i")[column.offset : column.offset + len(column) + 1]
    return Texts(kept, memoryview(data or b"").cast("B"))


# -- leaves ----------------------------------------------------------------------------------------------


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
    """Starts and ends of what lies between the edges, from the first of them on."""
    base = edges[0]
    moved = array("q", [edge - base for edge in edges])
    return moved[:-1], moved[1:]


try:
    from polycast.log.files import _columns
except ImportError:
    COMPILED = False
    stretches, spans = stretches_in_python, spans_in_python
else:
    COMPILED = True
    stretches, spans = _columns.stretches, _columns.spans
