"""Encodes groups; format.py describes and reads them.

The metadata of a message is a flatbuffer that pyarrow writes. For bursts it is a template, made once for each
length of the header: only numbers differ from group to group, and they are filled in at their positions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from polycast.log.files.columns import PackedColumns, Packer, SourcedBurst, padded
from polycast.log.files.format import BLANK, KEY, OPENING, PREFIX_BYTES, SCHEMA, Layout
from polycast.model import Buffer

SIZE_DIGITS = 12
HEADER_STEP = 64
"""Headers of bursts are padded with blanks: few lengths need few templates."""
PACKED = pa.ipc.IpcWriteOptions(compression="lz4")
NUMBER = struct.Struct("<q")
ONE_ROW = [pa.array([1 if pa.types.is_primitive(field.type) else "x"]).cast(field.type) for field in SCHEMA]


class EncodedGroup(NamedTuple):
    """A group as buffers to write one after the other, and its checksum."""

    pieces: list[Buffer]
    """The first one has everything before the columns."""
    checksum: str

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


def encode_bursts(
    bursts: Sequence[SourcedBurst], packer: Packer, layout: Layout, previous: str, first: int, **more: Any
) -> EncodedGroup:
    """Valid until the packer packs again. `more` are the optional keys of the header."""
    packed = packer.pack(bursts)
    text = _header_text(previous, first, packed.rows, more)
    text += b" " * (-len(text) % HEADER_STEP)
    head = _template(len(text)).fill(text, packed)
    pieces: list[Buffer] = [head, packed.body]
    return EncodedGroup(pieces, _finish(head, pieces, text, layout.seed))


def encode_rows(batch: pa.RecordBatch, layout: Layout, previous: str, first: int, **more: Any) -> EncodedGroup:
    """The columns are neither packed nor copied."""
    text = _header_text(previous, first, batch.num_rows, more)
    sink = _Buffers()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), layout.schema) as stream:
        stream.write_batch(batch, custom_metadata={KEY: text})
        found = list(sink.found)
    columns = next((index for index, piece in enumerate(found) if isinstance(piece, pa.Buffer)), len(found))
    head = bytearray(b"".join(found[:columns])[len(layout.head) :])
    pieces: list[Buffer] = [head, *(memoryview(piece).cast("B") for piece in found[columns:])]
    return EncodedGroup(pieces, _finish(head, pieces, text, layout.seed))


class _Buffers:
    """Collects the buffers that pyarrow writes, without copying columns."""

    def __init__(self) -> None:
        self.found: list[bytes | pa.Buffer] = []
        self._size = 0
        self.closed = False

    def write(self, data: bytes | pa.Buffer) -> int:
        self.found.append(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


# -- the header ------------------------------------------------------------------------------------------


def _header_text(previous: str, first: int, count: int, more: dict[str, Any]) -> bytes:
    size = b" " * SIZE_DIGITS
    head = b'%b%b", "previous": "%b", "size": %b, "first": %d, "count": %d' % (
        OPENING, BLANK, previous.encode(), size, first, count,
    )  # fmt: skip
    optional = {key: value for key, value in more.items() if value}
    return head + (b", " + msgspec.json.encode(optional)[1:] if optional else b"}")


def _finish(head: bytearray, pieces: Iterable[Buffer], text: bytes, seed: int) -> str:
    """Fills in the size and the checksum, which are known only after encoding."""
    at = head.index(text)
    size = at + text.index(b'"size": ') + len(b'"size": ')
    head[size : size + SIZE_DIGITS] = b"%*d" % (SIZE_DIGITS, sum(map(len, pieces)))
    digest = xxhash.xxh3_128(seed=seed)
    for piece in pieces:
        digest.update(piece)
    checksum = digest.hexdigest()
    digits = at + len(OPENING)
    head[digits : digits + len(BLANK)] = checksum.encode()
    return checksum


# -- the metadata of packed columns ----------------------------------------------------------------------


class _Template(NamedTuple):
    """Metadata with its prefix, and the positions of what differs from group to group."""

    data: bytes
    text: int
    body_size: int
    rows: int
    nodes: int
    """A vector: the rows of each column, and its nulls."""
    buffers: int
    """A vector: the position of each buffer in the body, and its size."""

    def fill(self, text: bytes, packed: PackedColumns) -> bytearray:
        head = bytearray(self.data)
        head[self.text : self.text + len(text)] = text
        NUMBER.pack_into(head, self.rows, packed.rows)
        _fill(head, self.nodes, [number for _ in SCHEMA for number in (packed.rows, 0)])
        numbers, position = [], 0
        for index, size in enumerate(packed.sizes):
            numbers += [position, 0] if index in FIRST_BUFFERS else []  # no bitmap: no value is null
            numbers += [position, size]
            position += padded(size)
        _fill(head, self.buffers, numbers)
        NUMBER.pack_into(head, self.body_size, position)
        return head


def _fill(head: bytearray, vector: int, numbers: Sequence[int]) -> None:
    struct.pack_into(f"<{len(numbers)}q", head, vector + 4, *numbers)


def _first_buffers() -> Iterable[int]:
    index = 0
    for field in SCHEMA:
        yield index
        index += 1 if pa.types.is_primitive(field.type) else 2


FIRST_BUFFERS = frozenset(_first_buffers())
"""The buffers that begin a column."""


@lru_cache(maxsize=64)
def _template(length: int) -> _Template:
    """For a header of that length. The positions follow from the schema of Arrow's messages (Message.fbs)."""
    text = b"~" * length
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=PACKED) as stream:
        stream.write_batch(pa.record_batch(ONE_ROW, schema=SCHEMA), custom_metadata={KEY: text})
    data = sink.getvalue().to_pybytes()[len(SCHEMA.serialize()) :]
    data = data[: PREFIX_BYTES + int.from_bytes(data[4:8], "little")]
    message = PREFIX_BYTES + _number(data, PREFIX_BYTES)
    batch = _follow(data, _field(data, message, 2))
    return _Template(
        data,
        text=data.index(text),
        body_size=_field(data, message, 3),
        rows=_field(data, batch, 0),
        nodes=_follow(data, _field(data, batch, 1)),
        buffers=_follow(data, _field(data, batch, 2)),
    )


def _number(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "little")


def _follow(data: bytes, position: int) -> int:
    return position + _number(data, position)


def _field(data: bytes, table: int, index: int) -> int:
    """The position of a field of a flatbuffer's table."""
    fields = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    entry = fields + 4 + 2 * index
    return table + int.from_bytes(data[entry : entry + 2], "little")
