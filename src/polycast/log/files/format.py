"""One group of messages on disk: an Arrow record batch message that proves itself.

    FF FF FF FF   length of the metadata, int32      the prefix, written last
    metadata      a flatbuffer; its custom metadata has one key, `polycast`, and there the header as JSON:
                  {"checksum": 32 hex digits, "previous": 32 hex digits, "size": bytes of the whole message,
                   "first": offset, "count": rows, "gap"?: {...}, "batches"?: [[id, first, count, owner], ...]}
    body          the columns

The checksum is xxh3_128 of the whole message, prefix and padding included, with the checksum's own digits as
zeros, seeded with the seed that the schema's metadata tells. `previous` is the checksum of the group before, also
across files: whoever follows it knows that nothing is missing. Nothing is decoded before its checksum was found
right. Where a prefix should be and zeros are, the file ends; Arrow reads that as the end of a stream.

Version 2 has the owner of a batch id, the identity that published the batch. In version 1 there is none: such an
id is known to every identity. A program that knows version 1 alone refuses what has version 2.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from polycast.errors import LogDamageError
from polycast.log.batch_ids import UNOWNED

VERSION = 2
KEY = b"polycast"
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("topic", pa.string()),
        ("sequence", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("dialect", pa.string()),
        ("format", pa.string()),
        ("payload", pa.binary()),
        ("source", pa.string()),
    ]
)
NOTHING_BEFORE = "0" * 32
"""The `previous` of a log's first group."""
PREFIX_BYTES = 8
ENDS = (bytes(8), b"\xff\xff\xff\xff\0\0\0\0")
"""What stands where the next prefix would be: nothing yet, or Arrow's own mark."""
CONTINUES = b"\xff\xff\xff\xff"
OPENING = b'{"checksum": "'
BLANK = b"0" * 32
SIZE_DIGITS = 12
ENVELOPE_BYTES = 4096
"""More than a schema and the metadata of a batch take, besides our own text."""


class Gap(msgspec.Struct, frozen=True):
    """Offsets that nobody will ever find, and why."""

    first: int
    next: int
    reason: str


class BatchEntry(msgspec.Struct, frozen=True, array_like=True):
    """A batch of a group that is kept once: its id, its first offset, its count, and the identity that owns it."""

    batch_id: str
    first: int
    count: int
    owner: str = UNOWNED


class GroupHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a group says about itself."""

    checksum: str
    previous: str
    size: int
    first: int
    count: int
    gap: Gap | None = None
    batches: list[BatchEntry] = []

    @property
    def next(self) -> int:
        return self.first + self.count


class EncodedGroup(NamedTuple):
    """A message that can go to a file, piece by piece, and its checksum."""

    pieces: list[memoryview]
    """All that comes before the columns is in the first."""
    checksum: str

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


HEADER = msgspec.json.Decoder(GroupHeader)


class Layout(NamedTuple):
    """What all groups of a file share."""

    schema: pa.Schema
    seed: int
    head: bytes
    """What the file begins with."""
    version: int = VERSION

    @classmethod
    def of(cls, schema: pa.Schema, seed: int) -> Layout:
        about = json.dumps({"version": VERSION, "seed": f"{seed:016x}"})
        marked = schema.with_metadata({KEY: about})
        return cls(marked, seed, bytes(marked.serialize()))


def _marks_of(schema: pa.Schema) -> tuple[int, int]:
    """The version and the seed."""
    try:
        about = json.loads(schema.metadata[KEY])
        version, seed = int(about["version"]), int(about["seed"], 16)
    except (KeyError, TypeError, ValueError) as error:
        raise LogDamageError("its schema is not that of a log") from error
    if version > VERSION:
        raise LogDamageError(f"it is of version {version}, and this program reads up to {VERSION}")
    return version, seed


# -- writing ---------------------------------------------------------------------------------------------


def encode_group(batch: pa.RecordBatch, layout: Layout, previous: str, first: int, **more: Any) -> EncodedGroup:
    """A group as it is written. `more` are the optional keys of its header."""
    text = _header_text(previous, first, batch.num_rows, more)
    room = pa.allocate_buffer(pa.ipc.get_record_batch_size(batch) + len(text) + ENVELOPE_BYTES)
    sink = pa.FixedSizeBufferWriter(room)
    with pa.ipc.new_stream(sink, layout.schema) as stream:
        stream.write_batch(batch, custom_metadata={KEY: text})
        end = sink.tell()
    pieces = [memoryview(room).cast("B")[len(layout.head) : end]]
    return EncodedGroup(pieces, _seal(pieces, text, layout.seed))


def encode_large_group(
    batch: pa.RecordBatch, layout: Layout, previous: str, first: int, **more: Any
) -> EncodedGroup:
    """The same, without a copy of the columns."""
    text = _header_text(previous, first, batch.num_rows, more)
    sink = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), layout.schema) as stream:
        stream.write_batch(batch, custom_metadata={KEY: text})
        found = list(sink.found)
    columns = next(place for place, piece in enumerate(found) if isinstance(piece, pa.Buffer))
    head = bytearray(b"".join(found[:columns])[len(layout.head) :])
    pieces = [memoryview(head), *(memoryview(piece).cast("B") for piece in found[columns:])]
    return EncodedGroup(pieces, _seal(pieces, text, layout.seed))


class _Pieces:
    """What pyarrow writes, as it is: columns are not copied."""

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


def _header_text(previous: str, first: int, count: int, more: dict[str, Any]) -> bytes:
    size = b" " * SIZE_DIGITS
    head = b'%b%b", "previous": "%b", "size": %b, "first": %d, "count": %d' % (
        OPENING, BLANK, previous.encode(), size, first, count,
    )  # fmt: skip
    optional = {key: value for key, value in more.items() if value}
    return head + (b", " + msgspec.json.encode(optional)[1:] if optional else b"}")


def _seal(pieces: list[memoryview], text: bytes, seed: int) -> str:
    """Writes the size and the checksum into the message, which knows neither before it is made."""
    head = pieces[0]
    metadata = int.from_bytes(head[4:8], "little")
    at = bytes(head[: PREFIX_BYTES + metadata]).index(text)
    size = at + text.index(b'"size": ') + len(b'"size": ')
    head[size : size + SIZE_DIGITS] = b"%*d" % (SIZE_DIGITS, sum(map(len, pieces)))
    proof = xxhash.xxh3_128(seed=seed)
    for piece in pieces:
        proof.update(piece)
    checksum = proof.hexdigest()
    digits = at + len(OPENING)
    head[digits : digits + len(BLANK)] = checksum.encode()
    return checksum


# -- reading ---------------------------------------------------------------------------------------------


def read_layout(data: bytes | memoryview) -> Layout:
    """From the beginning of a file. Its first group comes right behind the head."""
    if bytes(data[:4]) != CONTINUES:
        raise LogDamageError("it does not begin with a schema")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise LogDamageError("it does not begin with a schema") from error
    version, seed = _marks_of(schema)
    return Layout(schema, seed, bytes(data[: PREFIX_BYTES + int.from_bytes(data[4:8], "little")]), version)


def size_at(data: memoryview, position: int) -> int:
    """How long the group is that begins here by its own account, unchecked; 0: none begins here.

    What is cut off within its metadata is as long as the data and more, so that the caller brings more.
    """
    prefix = bytes(data[position : position + PREFIX_BYTES])
    if len(prefix) < PREFIX_BYTES or prefix in ENDS:
        return 0
    if prefix[:4] != CONTINUES:
        raise LogDamageError("no group begins here")
    metadata = int.from_bytes(prefix[4:], "little")
    start = position + PREFIX_BYTES
    if start + metadata > len(data):
        return PREFIX_BYTES + metadata
    size = _parse_header(bytes(data[start : start + metadata]))[0].size
    if size < PREFIX_BYTES + metadata:
        raise LogDamageError("the group is longer than it says")
    return size


def header_at(data: memoryview, position: int) -> GroupHeader | None:
    """What the group that begins here says about itself, unchecked; None: none begins here, or its head is cut."""
    prefix = bytes(data[position : position + PREFIX_BYTES])
    start = position + PREFIX_BYTES
    end = start + int.from_bytes(prefix[4:], "little")
    if len(prefix) < PREFIX_BYTES or prefix in ENDS or prefix[:4] != CONTINUES or end > len(data):
        return None
    return _parse_header(bytes(data[start:end]))[0]


def read_header(data: memoryview, position: int, seed: int) -> GroupHeader:
    """The header of the group that begins here, if it is whole and right; else LogDamageError."""
    metadata = int.from_bytes(data[position + 4 : position + PREFIX_BYTES], "little")
    start = position + PREFIX_BYTES
    header, at = _parse_header(bytes(data[start : start + metadata]))
    end = position + header.size
    if header.size < PREFIX_BYTES + metadata or end > len(data):
        raise LogDamageError("the group is cut off")
    digits = start + at
    proof = xxhash.xxh3_128(seed=seed)
    proof.update(data[position:digits])
    proof.update(BLANK)
    proof.update(data[digits + len(BLANK) : end])
    if proof.hexdigest() != header.checksum:
        raise LogDamageError("the group's checksum is wrong")
    return header


def read_batch(data: memoryview, position: int, header: GroupHeader, layout: Layout) -> pa.RecordBatch:
    """The rows of a group whose header was read."""
    return pa.ipc.read_record_batch(pa.py_buffer(data[position : position + header.size]), layout.schema)


def _parse_header(metadata: bytes) -> tuple[GroupHeader, int]:
    """The header as it stands there, and where its checksum's digits begin."""
    at = metadata.find(OPENING)
    length = int.from_bytes(metadata[at - 4 : at], "little") if at >= 4 else 0
    try:
        return HEADER.decode(metadata[at : at + length]), at + len(OPENING)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogDamageError("the group has no header that can be read") from error
