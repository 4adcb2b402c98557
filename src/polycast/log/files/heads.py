"""The head of a message of the log: its prefix and its metadata, everything before the columns.

The metadata is a flatbuffer that pyarrow writes. For bursts it is a template, made once for each length of the
header: only numbers differ from group to group, and they are filled in at their positions. Those that are known
only when the columns are packed come last: an open head has their positions.

`HASH_ADDRESS` is the address of the hash function in the library that Python's xxhash has loaded. The compiled
packer calls it there, because Python's function would release the interpreter once more for each group.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from polycast.log.files.format import BLANK, KEY, OPENING, PREFIX_BYTES, SCHEMA
from polycast.model import Buffer

SIZE_DIGITS = 12
HEADER_STEP = 64
"""Headers of bursts are padded with blanks: few lengths need few templates."""
ALIGNED_BYTES = 8
PACKED = pa.ipc.IpcWriteOptions(compression="lz4")
NUMBER = struct.Struct("<q")
ONE_ROW = [pa.array([1 if pa.types.is_primitive(field.type) else "x"]).cast(field.type) for field in SCHEMA]
LENGTH_BYTES = 4
"""Of a vector, before its first number."""


def padded(size: int) -> int:
    return size + -size % ALIGNED_BYTES


class OpenHead(NamedTuple):
    """The positions are those of what is filled in when the columns are packed."""

    data: bytearray
    seed: int
    size: int
    """SIZE_DIGITS decimal digits: the bytes of the whole message."""
    checksum: int
    """32 hex digits, zeros while the checksum is computed."""
    buffers: int = 0
    """For each buffer its position in the body and its size, as int64."""
    body_size: int = 0
    """As int64."""

    def fill_in(self, sizes: Sequence[int]) -> None:
        """The sizes of the buffers of all columns, without padding."""
        numbers, position = [], 0
        for index, size in enumerate(sizes):
            numbers += [position, 0] if index in FIRST_BUFFERS else []  # no bitmap: no value is null
            numbers += [position, size]
            position += padded(size)
        struct.pack_into(f"<{len(numbers)}q", self.data, self.buffers, *numbers)
        NUMBER.pack_into(self.data, self.body_size, position)

    def close(self, columns: Sequence[Buffer]) -> str:
        """The checksum of the message, which is complete then."""
        size = len(self.data) + sum(map(len, columns))
        self.data[self.size : self.size + SIZE_DIGITS] = b"%*d" % (SIZE_DIGITS, size)
        digest = xxhash.xxh3_128(self.data, seed=self.seed)
        for column in columns:
            digest.update(column)
        checksum = digest.hexdigest()
        self.data[self.checksum : self.checksum + len(BLANK)] = checksum.encode()
        return checksum


def header_text(previous: str, first: int, count: int, more: dict[str, Any]) -> bytes:
    """The header as JSON, with blanks for the size and zeros for the checksum. `more`: its optional keys."""
    size = b" " * SIZE_DIGITS
    head = b'%b%b", "previous": "%b", "size": %b, "first": %d, "count": %d' % (
        OPENING, BLANK, previous.encode(), size, first, count,
    )  # fmt: skip
    optional = {key: value for key, value in more.items() if value}
    return head + (b", " + msgspec.json.encode(optional)[1:] if optional else b"}")


def to_open_head(data: bytearray, text: bytes, seed: int) -> OpenHead:
    """For metadata with this header."""
    at = data.index(text)
    return OpenHead(data, seed, at + text.index(b'"size": ') + len(b'"size": '), at + len(OPENING))


def open_head(text: bytes, rows: int, seed: int) -> OpenHead:
    """For packed columns with so many rows."""
    text += b" " * (-len(text) % HEADER_STEP)
    template = _template(len(text))
    data = bytearray(template.data)
    data[template.text : template.text + len(text)] = text
    NUMBER.pack_into(data, template.rows, rows)
    nodes = [number for _ in SCHEMA for number in (rows, 0)]
    struct.pack_into(f"<{len(nodes)}q", data, template.nodes, *nodes)
    head = to_open_head(data, text, seed)
    return head._replace(buffers=template.buffers, body_size=template.body_size)


class _Template(NamedTuple):
    """The metadata of packed columns with its prefix, and the positions of what differs from group to group."""

    data: bytes
    text: int
    body_size: int
    rows: int
    nodes: int
    """For each column its rows, and its nulls."""
    buffers: int
    """For each buffer its position in the body, and its size."""


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
        nodes=_follow(data, _field(data, batch, 1)) + LENGTH_BYTES,
        buffers=_follow(data, _field(data, batch, 2)) + LENGTH_BYTES,
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


# -- the hash function -----------------------------------------------------------------------------------


class _Hash(ctypes.Structure):
    _fields_ = (("low", ctypes.c_uint64), ("high", ctypes.c_uint64))


def _find_hash() -> int:
    """0: the library does not have it under this name."""
    module = find_spec("xxhash._xxhash")
    try:
        function = ctypes.CDLL(module.origin if module else None).XXH3_128bits_withSeed
    except (OSError, AttributeError):
        return 0
    function.restype = _Hash
    function.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
    found = function(BLANK, len(BLANK), 1)
    if found.high << 64 | found.low != xxhash.xxh3_128_intdigest(BLANK, 1):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


HASH_ADDRESS = _find_hash()
