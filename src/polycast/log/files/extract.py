"""An extract of a file: some of its bytes, for a reader on another machine.

It is a record batch with two columns, `position` and `data`: the bytes, and their position in the file. Its last
row is the end of the file. Opened as a file, it has the size of the original; bytes that it does not have raise
OSError.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

import pyarrow as pa

EXTRACT = pa.schema(
    [pa.field("position", pa.int64(), nullable=False), pa.field("data", pa.binary(), nullable=False)]
)

Span = tuple[int, int]
"""The position of the first byte, and the position after the last."""


def join(spans: Iterable[Span]) -> list[Span]:
    """The same bytes in ascending order, with adjacent spans as one."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def extract(file: pa.NativeFile, spans: Iterable[Span]) -> pa.RecordBatch:
    """Raises OSError if the file is shorter."""
    joined = join(spans)
    edges = list(accumulate((end - begin for begin, end in joined), initial=0))
    data = memoryview(bytearray(edges[-1]))
    for (begin, end), at in zip(joined, edges, strict=False):
        file.seek(begin)
        if file.readinto(data[at : at + end - begin]) != end - begin:
            raise OSError(f"the file ends before byte {end:,}")
    positions = pa.array([begin for begin, _ in joined], pa.int64())
    buffers = [None, pa.array(edges, pa.int32()).buffers()[1], pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), len(joined), buffers)
    return pa.RecordBatch.from_arrays([positions, pieces], schema=EXTRACT)


class ExtractFile(io.RawIOBase):
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._positions: list[int] = batch["position"].to_pylist()
        self._pieces = [memoryview(piece.as_buffer()) for piece in batch["data"]]
        self._at = 0
        self._size = self._positions[-1] + len(self._pieces[-1])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> memoryview:
        """Without a copy. Fewer bytes only at the end of the file."""
        after = self._size if size < 0 else min(self._at + size, self._size)
        number = max(0, bisect_right(self._positions, self._at) - 1)
        begin = self._at - self._positions[number]
        piece = self._pieces[number][begin : begin + after - self._at] if begin >= 0 else memoryview(b"")
        if len(piece) < after - self._at:
            raise OSError(f"bytes {self._at:,} to {after:,} are not in the extract")
        self._at = after
        return piece
