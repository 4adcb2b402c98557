"""The messages of the stream: proposals as columns.

    "PC"  version, 1 byte  length of the head, int32  head  body

The head names the node, and the part of the body that this message has: a body that is too large for one message
is cut into parts, and is applied with the last part. The body has the proposals that a node gathered in one turn
of its event loop, or a frame of staged rows, or a commit: a proposal that names the frames with its rows by their
stream sequences. Head and body are MessagePack. The payloads of a burst are two buffers, like a binary column of
Arrow: the edges between the values as int32, and their bytes. A body that gets smaller by it is packed as a frame
of LZ4, before it is cut.

All nodes skip a message that cannot be read, or whose numbers are out of bounds. That depends on its bytes and its
stream sequence alone, so all nodes agree.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
import pyarrow as pa

from polycast.broker import Proposal, StagedFrame
from polycast.log.files.bursts import spans
from polycast.log.files.columns import payloads
from polycast.log.write.bulk import Bulk, from_stream, to_bulk
from polycast.log.write.bulk import to_columns as join_columns
from polycast.model import BatchKey, Burst, Format

VERSION = 2
"""Of the messages, and of the rules by which they are applied. Nodes of another version do not join the stream."""
MAGIC = b"PC%c" % VERSION
PREFIX = struct.Struct("<3si")
MESSAGE_BYTES = 768 * 1024
"""A larger body is cut into parts. The default limit of nats-server is 1 MiB."""
PACK_BYTES = 1024
"""Smaller bodies are not packed."""
LZ4 = pa.Codec("lz4")
PACKED_AT_MOST = 256
"""No frame of LZ4 packs better than this. Bounds the memory that a message can claim."""
EDGE_BYTES = 4
PARTS_AT_MOST = 4096
"""More than the 2 GiB of a burst. A packed body claims no more memory than so many parts."""
COMMIT_MESSAGES_AT_MOST = 65_536
"""A commit is one message. Each frame that it names takes up to 10 bytes; 128 KiB remain for names."""
NUMBERS_END = 2**63
TIMES_END = 253_402_300_800 * 10**6
"""The end of the year 9999, in microseconds since the epoch."""
NODE = re.compile(r"[A-Za-z0-9_-]{1,32}")


class MessageKind(IntEnum):
    BURSTS = 0
    FRAME = 1
    COMMIT = 2


class Head(msgspec.Struct, frozen=True, array_like=True):
    node: str
    incarnation: int
    """Higher after every start of the node."""
    number: int
    """Counts the messages of an incarnation, from 1."""
    part: int = 0
    parts: int = 1
    kind: MessageKind = MessageKind.BURSTS
    first: int = 0
    """Retention: all nodes remove the offsets below this one."""
    unpacked: int = 0
    """Bytes of a body that is packed; 0: it is not."""


class BurstColumns(msgspec.Struct, array_like=True):
    dialect: str
    topics: list[bytes]
    formats: list[Format]
    run_ends: list[int]
    edges: bytes
    values: bytes


class BulkColumns(msgspec.Struct, array_like=True):
    dialect: str
    frames: list[list[int]]
    """The stream sequences of the parts of each frame."""


class FrameColumns(msgspec.Struct, array_like=True):
    owner: str
    batch_id: str
    name: str | None
    before: int
    rows: int
    data: bytes
    dropped: bool = False


class Proposed(msgspec.Struct, array_like=True):
    source: str
    micros: int
    batch: tuple[str, str] | None
    messages: int
    link: bool
    bursts: list[BurstColumns]
    bulk: BulkColumns | None = None


class StreamMessage(NamedTuple):
    head: Head
    body: memoryview


class ForeignMessageError(Exception):
    """The message is not a proposal of a node."""


_to_bytes = msgspec.msgpack.Encoder().encode
_read_head = msgspec.msgpack.Decoder(Head).decode
_read_body = msgspec.msgpack.Decoder(list[Proposed]).decode
_read_frame = msgspec.msgpack.Decoder(FrameColumns).decode
_UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, OSError, RecursionError, pa.ArrowException)
"""pyarrow raises OSError for data that are cut off, msgspec RecursionError for data that are nested too deeply."""

# -- writing ---------------------------------------------------------------------------------------------


def write_body(proposals: Sequence[Proposal]) -> bytes:
    return _to_bytes([_to_proposed(proposal) for proposal in proposals])


def write_frame(frame: StagedFrame) -> bytes:
    batch, name, before, rows, data, dropped, _ = frame
    return _to_bytes(FrameColumns(*batch, name, before, rows, data, dropped))


def pack_body(body: bytes) -> tuple[bytes, int]:
    """The body as it is sent, and `Head.unpacked`."""
    packed = LZ4.compress(body, asbytes=True) if len(body) >= PACK_BYTES else body
    return (packed, len(body)) if len(packed) < len(body) else (body, 0)


def cut_body(body: bytes) -> list[memoryview]:
    view = memoryview(body)
    return [view[start : start + MESSAGE_BYTES] for start in range(0, len(body), MESSAGE_BYTES)]


def write_message(head: Head, body: bytes | memoryview) -> bytes:
    packed = _to_bytes(head)
    return b"".join((PREFIX.pack(MAGIC, len(packed)), packed, body))


def _to_proposed(proposal: Proposal) -> Proposed:
    bursts, source, micros, batch, messages, bulk, link = proposal
    key = (batch.owner, batch.batch_id) if batch else None
    columns = [_to_columns(burst) for burst in bursts]
    return Proposed(source, micros, key, messages, link, columns, _to_bulk_columns(bulk) if bulk else None)  # type: ignore[arg-type]


def _to_columns(burst: Burst) -> BurstColumns:
    return BurstColumns(burst.dialect, burst.topics, burst.formats, burst.run_ends, *payloads(burst))


def _to_bulk_columns(bulk: Bulk) -> BulkColumns:
    return BulkColumns(bulk.dialect, [list(sequences) for sequences in bulk.frames])


# -- reading ---------------------------------------------------------------------------------------------


def read_message(data: bytes) -> StreamMessage:
    try:
        magic, size = PREFIX.unpack_from(data)
        if magic != MAGIC:
            raise ForeignMessageError("the first bytes are not those of a proposal")
        view = memoryview(data)[PREFIX.size :]
        if not 0 <= size <= len(view):
            raise ForeignMessageError("the head is cut off")
        head = _read_head(view[:size])
    except (struct.error, *_UNREADABLE) as error:
        raise ForeignMessageError(str(error)) from error
    check_head(head)
    return StreamMessage(head, view[size:])


def check_head(head: Head) -> None:
    if not NODE.fullmatch(head.node):
        raise ForeignMessageError(f"{head.node[:40]!r} is no name of a node")
    numbers = 0 < head.number < NUMBERS_END and 0 < head.incarnation < NUMBERS_END
    if not numbers or not 0 <= head.part < head.parts <= PARTS_AT_MOST or not 0 <= head.first < NUMBERS_END:
        raise ForeignMessageError(f"part {head.part} of {head.parts}, number {head.number}")
    if not 0 <= head.unpacked <= min(PACKED_AT_MOST * head.parts, PARTS_AT_MOST) * MESSAGE_BYTES:
        raise ForeignMessageError(f"a body that claims {head.unpacked} bytes")
    if head.kind is MessageKind.COMMIT and head.parts != 1:
        raise ForeignMessageError("a commit in several parts")


def unpack_body(body: bytes | memoryview, unpacked: int) -> bytes | memoryview:
    if not unpacked:
        return body
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "lz4") as stream:
            found: bytes = stream.read(min(unpacked, PACKED_AT_MOST * len(body)) + 1)
    except (OSError, pa.ArrowException) as error:
        raise ForeignMessageError(str(error)) from error
    if len(found) != unpacked:
        raise ForeignMessageError(f"a packed body does not have {unpacked:,} bytes")
    return found


def read_body(body: bytes | memoryview, unpacked: int = 0) -> list[Proposal]:
    try:
        return [_from_proposed(proposed) for proposed in _read_body(unpack_body(body, unpacked))]
    except _UNREADABLE as error:
        raise ForeignMessageError(str(error)) from error


def check_times(proposals: Sequence[Proposal]) -> Sequence[Proposal]:
    """Also for proposals that were not read: a node with an unset clock must skip its own messages like all
    others do."""
    for proposal in proposals:
        if not 0 <= proposal.micros < TIMES_END:
            raise ForeignMessageError(f"a time of {proposal.micros} microseconds since the epoch")
    return proposals


def read_frame(body: bytes | memoryview, sequences: Sequence[int], unpacked: int = 0) -> StagedFrame:
    try:
        found = _read_frame(unpack_body(body, unpacked))
    except _UNREADABLE as error:
        raise ForeignMessageError(str(error)) from error
    batch = BatchKey(found.owner, found.batch_id)
    return StagedFrame(batch, found.name, found.before, found.rows, found.data, found.dropped, sequences)


def join_frame(messages: Sequence[bytes], sequences: Sequence[int]) -> StagedFrame:
    """Joins a frame that was cut into these messages."""
    found = [read_message(data) for data in messages]
    first = found[0].head if found else None
    for part, (head, _) in enumerate(found):
        wanted = first and Head(
            first.node, first.incarnation, first.number + part, part, len(found), MessageKind.FRAME,
            unpacked=first.unpacked,
        )  # fmt: skip
        if head != wanted:
            raise ForeignMessageError("a commit names messages that are not the parts of one frame")
    return read_frame(b"".join(body for _, body in found), sequences, first.unpacked if first else 0)


def read_commit(body: bytes | memoryview, sequence: int) -> tuple[Proposed, BulkColumns]:
    """Reads a commit with this stream sequence, without the rows of its frames."""
    try:
        [proposed] = _read_body(body)
    except _UNREADABLE as error:
        raise ForeignMessageError(str(error)) from error
    if proposed.bursts or not proposed.bulk or not proposed.batch:
        raise ForeignMessageError("a commit without rows or without a batch id")
    named = [each for frame in proposed.bulk.frames for each in frame]
    if not all(0 < each < sequence for each in named) or len(set(named)) < len(named):
        raise ForeignMessageError(f"a commit names messages twice, or messages that are not before {sequence:,}")
    return proposed, proposed.bulk


def to_proposal(proposed: Proposed, columns: BulkColumns, frames: Sequence[StagedFrame]) -> Proposal:
    """A commit, with the rows of its frames."""
    try:
        parts = [part for frame in frames if frame.rows for part in from_stream(frame.data)]
        bulk = to_bulk(columns.dialect, join_columns(parts), columns.frames)
    except (*_UNREADABLE, IndexError) as error:
        raise ForeignMessageError(str(error)) from error
    if len(bulk) != proposed.messages or {tuple(frame.batch) for frame in frames} != {proposed.batch}:
        raise ForeignMessageError("the frames of a commit have another batch id or another number of rows")
    batch = BatchKey(*proposed.batch) if proposed.batch else None
    return Proposal((), proposed.source, proposed.micros, batch, proposed.messages, bulk, proposed.link)


def _from_proposed(proposed: Proposed) -> Proposal:
    batch = BatchKey(*proposed.batch) if proposed.batch else None
    bursts = [_from_columns(columns) for columns in proposed.bursts]
    if not bursts or proposed.bulk:
        raise ValueError("a proposal without bursts")
    if not 0 <= proposed.messages <= sum(map(len, bursts)):
        raise ValueError(f"a proposal with {proposed.messages} messages")
    return Proposal(bursts, proposed.source, proposed.micros, batch, proposed.messages, None, proposed.link)


def _from_columns(columns: BurstColumns) -> Burst:
    """Checks the invariants that compiled functions rely on."""
    edges = memoryview(columns.edges).cast("i")
    run_ends, count = columns.run_ends, len(edges) - 1
    b"\0".join(columns.topics).decode()
    rising = all(map(int.__lt__, [0, *run_ends], run_ends))
    if not rising or not run_ends or run_ends[-1] != count:
        raise ValueError(f"the runs do not add up to {count:,} messages")
    if len(columns.topics) != len(run_ends) or len(columns.formats) != len(run_ends):
        raise ValueError(f"not one topic and one format for each of {len(run_ends):,} runs")
    if edges[0] or edges[-1] != len(columns.values):
        raise ValueError("payload edges outside of the bytes")
    starts, ends = spans(edges)  # refuses edges that fall
    return Burst(columns.dialect, columns.values, starts, ends, columns.topics, columns.formats, run_ends)
