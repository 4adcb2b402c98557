"""One group of messages on disk: an Arrow record batch message with a checksum.

    FF FF FF FF   length of the metadata, int32      the prefix, written last
    metadata      a flatbuffer; its custom metadata has one key, `polycast`, whose value is the header as JSON:
                  {"checksum": 32 hex digits, "previous": 32 hex digits, "size": bytes of the whole message,
                   "first": offset, "count": rows, "gap"?: {...}, "position"?: {...},
                   "batches"?: [[id, first, count, owner, time], ...]}
    body          the columns; numbers and texts may be packed as LZ4, see columns.py

The checksum is xxh3_128 of the whole message, prefix and padding included, with zeros for the digits of the
checksum, and with the seed from the metadata of the schema. `previous` is the checksum of the group before, also
across files: a reader that follows this chain knows that no group is missing. A group is decoded only after its
checksum was verified. A file ends where zeros stand in place of a prefix; Arrow reads them as the end of a stream.

Version 2 adds the owner of a batch id: the identity that published the batch. Ids of version 1 have no owner and
are known to every identity. A program of version 1 refuses files of version 2. `position` is written by a node of
a cluster: where it is in the stream after this group.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from polycast.errors import LogDamageError, LogVersionError
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
"""The `previous` of the first group of a log."""
PREFIX_BYTES = 8
ENDS = (bytes(8), b"\xff\xff\xff\xff\0\0\0\0")
"""In place of the next prefix: allocated zeros, or Arrow's end of stream."""
CONTINUES = b"\xff\xff\xff\xff"
OPENING = b'{"checksum": "'
BLANK = b"0" * 32
ENVELOPE_BYTES = 4096
"""Above the size of a schema and of the metadata of a batch, without the header."""
LARGE_BYTES = 4 * 1024 * 1024
"""Larger groups, mostly committed batches, are not copied to read them."""
IN_THIS_THREAD = pa.ipc.IpcReadOptions(use_threads=False)

UNCLEAN = "unclean stop"
RESTORED = "restored from a backup"
NOT_STORED = "not stored: "
REMOVED = "removed by retention"
LOST_TO_DAMAGE = "lost to damage, see "


class Gap(msgspec.Struct, frozen=True):
    """A range of offsets without messages, and the reason."""

    first: int
    next: int
    reason: str

    @property
    def refused(self) -> bool:
        """Whether the publishers got an error instead of an acknowledgement."""
        return NOT_STORED in self.reason

    @property
    def missed(self) -> bool:
        """Whether messages are missing: the gap is more than offsets that were reserved before a stop."""
        return self.refused or not self.reason.startswith((UNCLEAN, RESTORED))

    @property
    def damaged(self) -> bool:
        return self.missed and not self.refused and self.reason != REMOVED

    @property
    def recorded(self) -> bool:
        """Whether salvage has recorded the damage."""
        return self.reason.startswith(LOST_TO_DAMAGE)

    @property
    def cause(self) -> str:
        """The reason without the names of files, for subscribers."""
        if self.refused:
            return "they were not stored, and their publishers got an error"
        return REMOVED if self.reason == REMOVED else "the log is damaged there"


class BatchEntry(msgspec.Struct, frozen=True, array_like=True):
    """A batch with an id in a group: the id, its first offset, its count, its owner's identity, and its time."""

    batch_id: str
    first: int
    count: int
    owner: str = UNOWNED
    micros: int = 0
    """0, as in older files: the time of the group's last message."""


class StreamPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a node of a cluster is. With topics and batch ids, everything that apply depends on."""

    stream: str
    """The name of the stream, and when it was created."""
    sequence: int = 0
    """The stream sequence of the last message that was applied."""
    chain: str = ""
    """The hash over everything that was applied."""
    proposers: dict[str, tuple[int, int]] = {}
    """For each node its incarnation, and the number of its last proposal."""
    generations: tuple[int, int] = (0, 0)
    """The offsets where the old and the young generation of the table of topics begin."""
    floor: int = 0
    """The next sequence of all topics that are not in the table."""
    parts: dict[str, int] = {}
    """For each node with an unfinished proposal, the stream sequence of its first part."""
    foreign: int = 0
    """Messages of the stream that are no proposals."""
    micros: int = 0
    """The time, which a repeated batch advances without a row."""
    staged: int = 0
    """The stream sequence of the oldest staged rows that wait for their commit; 0: none wait."""
    first: int = 0
    """All nodes remove what lies before this offset."""
    digest: str = ""
    """Of the last message that was applied; empty: not known, as in older files."""


class GroupHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    checksum: str
    previous: str
    size: int
    first: int
    count: int
    gap: Gap | None = None
    batches: list[BatchEntry] = []
    position: StreamPosition | None = None

    @property
    def next(self) -> int:
        return self.first + self.count


HEADER = msgspec.json.Decoder(GroupHeader)


class Layout(NamedTuple):
    """Shared by all groups of a file."""

    schema: pa.Schema
    seed: int
    head: bytes
    """The beginning of the file."""
    version: int = VERSION

    @classmethod
    def of(cls, schema: pa.Schema, seed: int) -> Layout:
        text = json.dumps({"version": VERSION, "seed": f"{seed:016x}"})
        marked = schema.with_metadata({KEY: text})
        return cls(marked, seed, bytes(marked.serialize()))


def _version_and_seed(schema: pa.Schema) -> tuple[int, int]:
    try:
        fields = json.loads(schema.metadata[KEY])
        version, seed = int(fields["version"]), int(fields["seed"], 16)
    except (KeyError, TypeError, ValueError) as error:
        raise LogDamageError("its schema is not the schema of a log") from error
    if version > VERSION:
        raise LogVersionError("the file", version, VERSION)
    return version, seed


def read_layout(data: bytes | memoryview) -> Layout:
    """From the beginning of a file. The first group follows the head."""
    if bytes(data[:4]) != CONTINUES:
        raise LogDamageError("it does not begin with a schema")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise LogDamageError("it does not begin with a schema") from error
    version, seed = _version_and_seed(schema)
    return Layout(schema, seed, bytes(data[: PREFIX_BYTES + int.from_bytes(data[4:8], "little")]), version)


def size_at(data: memoryview, position: int) -> int:
    """The size that the group here declares, unverified; 0: no group begins here.

    If the data ends inside the metadata, the result is larger than the data, so that the caller loads more.
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
        raise LogDamageError("the group is longer than its declared size")
    return size


def header_at(data: memoryview, position: int) -> GroupHeader | None:
    """The header of the group here, unverified. None if no group begins here, or if its header is incomplete."""
    prefix = bytes(data[position : position + PREFIX_BYTES])
    start = position + PREFIX_BYTES
    end = start + int.from_bytes(prefix[4:], "little")
    if len(prefix) < PREFIX_BYTES or prefix in ENDS or prefix[:4] != CONTINUES or end > len(data):
        return None
    return _parse_header(bytes(data[start:end]))[0]


def read_header(data: memoryview, position: int, seed: int) -> GroupHeader:
    """The header of a complete and valid group. Otherwise LogDamageError."""
    metadata = int.from_bytes(data[position + 4 : position + PREFIX_BYTES], "little")
    start = position + PREFIX_BYTES
    header, at = _parse_header(bytes(data[start : start + metadata]))
    end = position + header.size
    if header.size < PREFIX_BYTES + metadata or end > len(data):
        raise LogDamageError("the group is cut off")
    digits = start + at
    digest = xxhash.xxh3_128(seed=seed)
    digest.update(data[position:digits])
    digest.update(BLANK)
    digest.update(data[digits + len(BLANK) : end])
    if digest.hexdigest() != header.checksum:
        raise LogDamageError("the group's checksum is wrong")
    return header


def read_batch(data: memoryview, position: int, header: GroupHeader, layout: Layout) -> pa.RecordBatch:
    """The rows of a group whose header was verified.

    pyarrow unpacks a single message in threads of its own. To wait for them takes several times as long as to
    unpack the message in this thread, as a stream, which needs a copy of it behind a schema. That of the file is
    not taken: no checksum covers it.
    """
    group = data[position : position + header.size]
    if header.size > LARGE_BYTES:
        return pa.ipc.read_record_batch(pa.py_buffer(group), layout.schema)
    stream = pa.py_buffer(b"".join((_to_head(layout.schema), group)))
    return pa.ipc.open_stream(stream, options=IN_THIS_THREAD).read_next_batch()


@lru_cache(maxsize=16)
def _to_head(schema: pa.Schema) -> bytes:
    """The beginning of a stream with these names and types, in the byte order of this machine."""
    return bytes(pa.schema([pa.field(field.name, field.type) for field in schema]).serialize())


def _parse_header(metadata: bytes) -> tuple[GroupHeader, int]:
    """The header, and the position of the digits of its checksum."""
    at = metadata.find(OPENING)
    length = int.from_bytes(metadata[at - 4 : at], "little") if at >= 4 else 0
    try:
        return HEADER.decode(metadata[at : at + length]), at + len(OPENING)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogDamageError("the group has no readable header") from error
