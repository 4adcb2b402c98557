"""Encodes groups; format.py describes and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from polycast.log.files.columns import Packer, SourcedBurst
from polycast.log.files.format import KEY, Layout
from polycast.log.files.heads import header_text, open_head, to_open_head
from polycast.model import Buffer


class EncodedGroup(NamedTuple):
    """A group as buffers to write one after the other, and its checksum."""

    pieces: Sequence[Buffer]
    """The first one has everything before the columns."""
    checksum: str

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


def encode_bursts(
    bursts: Sequence[SourcedBurst],
    packer: Packer,
    layout: Layout,
    previous: str,
    first: int,
    at: int = 0,
    **more: Any,
) -> EncodedGroup:
    """Valid until the packer packs again. `more` are the optional keys of the header."""
    rows = sum([len(each.burst) for each in bursts])
    head = open_head(header_text(previous, first, rows, more), rows, layout.seed)
    message, checksum = packer.pack_message(bursts, head, at)
    return EncodedGroup([message], checksum)


def encode_rows(batch: pa.RecordBatch, layout: Layout, previous: str, first: int, **more: Any) -> EncodedGroup:
    """The columns are neither packed nor copied."""
    text = header_text(previous, first, batch.num_rows, more)
    sink = _Buffers()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), layout.schema) as stream:
        stream.write_batch(batch, custom_metadata={KEY: text})
        found = list(sink.found)
    begin = next((index for index, piece in enumerate(found) if isinstance(piece, pa.Buffer)), len(found))
    head = to_open_head(bytearray(b"".join(found[:begin])[len(layout.head) :]), text, layout.seed)
    columns = [memoryview(piece).cast("B") for piece in found[begin:]]
    return EncodedGroup([head.data, *columns], head.close(columns))


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
