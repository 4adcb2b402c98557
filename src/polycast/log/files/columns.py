"""From bursts to the columns of the log, without a Python object per message.

The bursts of a group become the buffers of one Arrow batch, as they stand in the body of its message. Numbers and
texts that repeat themselves are packed: each is a frame of LZ4, which every reader of Arrow unpacks. Payloads are
copied once, out of the block that was received:

                                      plain                                             packed
    offset, sequence                  8 bytes per row                                   4
    time                              8                                                 almost nothing
    topic, dialect, format, source    4 for the edges between the texts, and the texts  4
    payload                           4, and the payloads                               not packed

A buffer in the body begins with its plain size as int64, or -1 if it is not packed, and is padded to 8 bytes.

The C version (`_columns.pyx`) knows from the runs where bytes repeat. For each message it releases the GIL once,
and copies, packs, completes the head and hashes meanwhile: to get the GIL back from a busy event loop may take as
long as that work. A test checks that both versions have the same meaning.
"""

from __future__ import annotations

import operator
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, repeat, starmap
from typing import NamedTuple, Protocol

import pyarrow as pa

from polycast.log.files.format import SCHEMA
from polycast.log.files.heads import OpenHead, padded
from polycast.model import Burst

OFFSET_BYTES = 8
PLAIN = -1
PLAIN_SIZE = struct.Struct("<q")
LZ4 = pa.Codec("lz4")
COLUMN_LIMIT_BYTES = 2**31 - 1
"""String and binary columns of Arrow have 32-bit offsets."""


class SourcedBurst(NamedTuple):
    """A numbered burst, the connection it came from, and its time."""

    burst: Burst
    source: bytes
    micros: int


class PackedColumns(NamedTuple):
    """The columns of a group, as they stand in the body of its message."""

    rows: int
    sizes: Sequence[int]
    """Of the buffers of all columns in schema order, without padding."""
    body: bytes | memoryview
    """The buffers one after the other, each padded."""


class PackedMessage(NamedTuple):
    """A head and the columns behind it."""

    data: bytes | memoryview
    checksum: str


PlainBuffers = tuple[bytes, ...]
"""Of one column: its numbers, or the edges between its values and then their bytes."""


class Packer(Protocol):
    """Writes all groups into the same memory, since new memory takes longer than packing.

    What it returns is valid until the next group.
    """

    def pack(self, pieces: Sequence[SourcedBurst]) -> PackedColumns: ...

    def pack_message(self, pieces: Sequence[SourcedBurst], head: OpenHead, position: int) -> PackedMessage: ...


class PackerInPython:
    def pack(self, pieces: Sequence[SourcedBurst]) -> PackedColumns:
        columns = _gather(pieces)
        buffers = [
            _to_packed(buffer) if buffer is column[-1] and field.name != "payload" else _to_buffer(buffer, PLAIN)
            for field, column in zip(SCHEMA, columns, strict=True)
            for buffer in column
        ]
        body = b"".join([buffer.ljust(padded(len(buffer)), b"\0") for buffer in buffers])
        return PackedColumns(len(columns[0][0]) // OFFSET_BYTES, list(map(len, buffers)), body)

    def pack_message(self, pieces: Sequence[SourcedBurst], head: OpenHead, position: int) -> PackedMessage:
        packed = self.pack(pieces)
        head.fill_in(packed.sizes)
        checksum = head.close([packed.body])
        return PackedMessage(b"".join((head.data, packed.body)), checksum)


def _to_packed(buffer: bytes) -> bytes:
    frame = LZ4.compress(buffer, asbytes=True) if buffer else b""
    return _to_buffer(frame, len(buffer)) if len(frame) < len(buffer) else _to_buffer(buffer, PLAIN)


def _to_buffer(data: bytes, plain_size: int) -> bytes:
    return PLAIN_SIZE.pack(plain_size) + data if data else b""


def _gather(pieces: Sequence[SourcedBurst]) -> list[PlainBuffers]:
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


def _counted(firsts: Iterable[int], counts: Sequence[int]) -> PlainBuffers:
    """For each first number, that many consecutive numbers."""
    return _numbers(chain.from_iterable(range(first, first + n) for first, n in zip(firsts, counts, strict=True)))


def _numbers(values: Iterable[int]) -> PlainBuffers:
    return (array("q", values).tobytes(),)


def _repeated(values: Iterable[bytes], counts: Sequence[int]) -> PlainBuffers:
    pairs = list(zip(values, counts, strict=True))
    edges = _edges(chain.from_iterable(repeat(len(value), count) for value, count in pairs))
    return edges, b"".join(starmap(operator.mul, pairs))


def payloads_in_python(burst: Burst) -> PlainBuffers:
    """The payloads of one burst, without the bytes between them."""
    return _payloads([burst])


def _payloads(bursts: Sequence[Burst]) -> PlainBuffers:
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
    payloads = payloads_in_python

    def new_packer() -> Packer:
        return PackerInPython()
else:
    COMPILED = True
    payloads = _columns.payloads

    def new_packer() -> Packer:
        return _columns.Packer()
