"""From bursts to a record batch: the columns of the log, without a Python object per message.

The bursts of a group become the buffers of one Arrow batch: runs are repeated, numbers count up, and each payload
is copied once, out of the block that was received:

    offset, sequence, time            8 bytes per row
    topic, dialect, format, source    4 bytes per row for the offsets, then the text
    payload                           the same, with the payloads

The C version of `gather` (`_columns.pyx`) takes 15 ns for a message of 100 bytes, 60 ns if every message has
another topic, and releases the GIL while it copies. Python takes 1,300 ns and more. A test checks that both are
equal.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, repeat, starmap
from typing import NamedTuple

import pyarrow as pa

from polycast.log.files.format import SCHEMA
from polycast.model import Burst

OFFSET_BYTES = 8
COLUMN_LIMIT_BYTES = 2**31 - 1
"""String and binary columns of Arrow have 32-bit offsets."""


class SourcedBurst(NamedTuple):
    """A numbered burst, the connection it came from, and its time."""

    burst: Burst
    source: bytes
    micros: int


Buffers = tuple[bytes, ...]
"""Of one column: its numbers, or the edges between its values and then their bytes."""


def to_batch(pieces: Sequence[SourcedBurst]) -> pa.RecordBatch:
    """The messages of all bursts as rows of the log."""
    columns = gather(pieces)
    rows = len(columns[0][0]) // OFFSET_BYTES
    arrays = [
        pa.Array.from_buffers(field.type, rows, [None, *map(pa.py_buffer, buffers)])
        for field, buffers in zip(SCHEMA, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def gather_in_python(pieces: Sequence[SourcedBurst]) -> list[Buffers]:
    """The buffers of all columns, in schema order."""
    bursts = [piece.burst for piece in pieces]
    rows = [len(burst) for burst in bursts]
    runs = list(chain.from_iterable(map(_run_lengths, bursts)))
    topics = chain.from_iterable(burst.topics for burst in bursts)
    formats = [format_.encode() for burst in bursts for format_ in burst.formats]
    sequences = chain.from_iterable(burst.sequences for burst in bursts)
    return [
        _counted((burst.offset for burst in bursts), rows),
        _repeated(topics, runs),
        _counted(sequences, runs),
        _numbers(chain.from_iterable(map(repeat, (piece.micros for piece in pieces), rows))),
        _repeated((burst.dialect.encode() for burst in bursts), rows),
        _repeated(formats, runs),
        _payloads(bursts),
        _repeated((piece.source for piece in pieces), rows),
    ]


def _run_lengths(burst: Burst) -> Iterator[int]:
    edges = [0, *burst.run_ends]
    if edges[-1] != len(burst):
        raise ValueError(f"runs of {edges[-1]:,} messages in a burst of {len(burst):,}")
    return starmap(operator.sub, zip(edges[1:], edges, strict=False))


def _counted(firsts: Iterable[int], counts: Sequence[int]) -> Buffers:
    """For each first number, that many consecutive numbers."""
    return _numbers(chain.from_iterable(range(first, first + n) for first, n in zip(firsts, counts, strict=True)))


def _numbers(values: Iterable[int]) -> Buffers:
    return (array("q", values).tobytes(),)


def _repeated(values: Iterable[bytes], counts: Sequence[int]) -> Buffers:
    pairs = list(zip(values, counts, strict=True))
    edges = _edges(chain.from_iterable(repeat(len(value), count) for value, count in pairs))
    return edges, b"".join(starmap(operator.mul, pairs))


def payloads_in_python(burst: Burst) -> Buffers:
    """The payloads of one burst, without the bytes between them."""
    return _payloads([burst])


def _payloads(bursts: Sequence[Burst]) -> Buffers:
    sizes = chain.from_iterable(map(operator.sub, burst.ends, burst.starts) for burst in bursts)
    return _edges(sizes), b"".join(chain.from_iterable(map(_cut, bursts)))


def _cut(burst: Burst) -> Iterator[memoryview]:
    view = memoryview(burst.block)
    for start, end in zip(burst.starts, burst.ends, strict=True):
        if not 0 <= start <= end <= len(view):
            raise ValueError(f"a payload from {start:,} to {end:,} in a block of {len(view):,} bytes")
        yield view[start:end]


def _edges(sizes: Iterable[int]) -> bytes:
    edges = array("q", accumulate(sizes, initial=0))
    if edges[-1] > COLUMN_LIMIT_BYTES:
        raise too_large(edges[-1])
    return array("i", edges).tobytes()


def too_large(size: int) -> OverflowError:
    return OverflowError(
        f"{size:,} bytes in one column of a batch, where {COLUMN_LIMIT_BYTES:,} fit; write smaller groups"
    )


try:
    from polycast.log.files import _columns
except ImportError:
    COMPILED = False
    gather, payloads = gather_in_python, payloads_in_python
else:
    COMPILED = True
    gather, payloads = _columns.gather, _columns.payloads
