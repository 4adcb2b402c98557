"""Rows of the log in columns, by request: for readers on another machine.

    polycast/log                                          {"first", "next", "segments", "bytes", "node", "folder"}
                      {"patterns", "from"?}               {"next", "end"}
    polycast/rows     {"from", "to", "columns"?, "patterns"?, "bytes"?, "row_groups"?}   bytes: an Arrow IPC stream
    polycast/offsets  {"time": microseconds} or {"sequences": {topic: n}}   {"offset"}

The response has the rows from one offset up to another that match and are durable. The metadata of its schema has
one key, `polycast`, with the JSON {"next", "skipped": [{"first", "next", "reason"}, ...]}: the response may end
before `to`, and `next` is where to continue. `skipped` are gaps: offsets whose messages are missing.

With "row_groups": true, the response may have the bytes of row groups in place of rows: their numbers are in
`row_groups` of the metadata, and the columns are those of `polycast.log.files.extract`. The row groups have all
rows of the request up to `next`, and others: the requester selects.

With patterns, `polycast/log` responds to a polling reader whether there are new messages: no message from `end` on
matches. The table of topics knows that; the log is not read. The reader has read up to `from`: messages before it
do not count.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct, field

from polycast.errors import UsageError
from polycast.log.files.extract import EXTRACT
from polycast.log.files.folder import segment_size, segments
from polycast.log.files.format import KEY, SCHEMA, Gap
from polycast.log.read.masks import mask_of, matching
from polycast.log.read.reader import Reader
from polycast.log.read.seek import first_offset, seek_sequence, seek_sequences, seek_time
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import Work
from polycast.log.times import MICROS
from polycast.model import Pattern
from polycast.server.api.row_groups import extract_row_groups
from polycast.server.api.rows_query import Offset, RowsQuery

SECONDS_AT_MOST = 0.25
"""Reading time of one request, without the wait for turns."""
PATTERNS_PER_STEP = 100
"""Patterns that one step of work compares: a request can have many thousands."""
PATTERNS_AT_MOST = 1000
"""Maximum number of patterns of a request that is compared with all topics."""
LAST_MICROS = 253_402_300_799_999_999
"""Last microsecond of the year 9999."""


class LogRequest(Struct, forbid_unknown_fields=True):
    """The body of `polycast/log`."""

    from_: Offset = field(name="from", default=0)
    patterns: Annotated[list[str], Meta(max_length=PATTERNS_AT_MOST)] | None = None


class PositionRequest(Struct, forbid_unknown_fields=True):
    """The body of `polycast/offsets`."""

    time: Annotated[int, Meta(ge=0, le=LAST_MICROS)] | None = None
    sequences: dict[str, Offset] | None = None


# -- rows ------------------------------------------------------------------------------------------------


def read_rows(
    index: SegmentIndex, wanted: RowsQuery, durable_next: int, on_skipped: Callable[[Gap], None] = lambda gap: None
) -> Work[bytes]:
    """Rows of messages before the offset `durable_next`."""
    stop = max(wanted.first, min(wanted.next, durable_next))
    if wanted.row_group_bytes and (found := extract_row_groups(index.folder, wanted, stop)):
        yield
        about = {"next": found.next, "skipped": [], "row_groups": found.numbers}
        return _to_stream([found.extracted], EXTRACT, about)
    reader = Reader(index.folder, wanted.first, _needed(wanted))
    try:
        reader.seek(wanted.first, index.position(wanted.first))
        parts, after = yield from _collect(reader, wanted, stop)
    finally:
        reader.close()
    for gap in reader.skipped:
        on_skipped(gap)
    lost = [gap for gap in reader.skipped if gap.first < after]
    skipped = [Gap(gap.first, min(gap.next, after), gap.reason) for gap in lost]
    schema = pa.schema([SCHEMA.field(name) for name in wanted.columns])
    return _to_stream(parts, schema, {"next": after, "skipped": skipped})


def _needed(wanted: RowsQuery) -> list[str]:
    more = ["offset", "topic"] if wanted.patterns else ["offset"]
    return list(dict.fromkeys((*more, *wanted.columns)))


def _collect(reader: Reader, wanted: RowsQuery, stop: int) -> Work[tuple[list[pa.RecordBatch], int]]:
    """The rows, and the offset to continue with."""
    parts: list[pa.RecordBatch] = []
    room, spent = wanted.bytes, 0.0
    while room > 0 and reader.offset < stop and spent < SECONDS_AT_MOST:
        began = time.monotonic()
        batch = reader.read(stop)
        if batch is None:
            reader.finish(stop)
            return parts, stop
        found = batch if wanted.patterns is None else (yield from _matching(batch, wanted.patterns))
        part = _fitting(found, room, first=not parts)
        if part.num_rows:  # an empty slice is written with the bytes of the rows around it
            parts.append(part)
        if part.num_rows < found.num_rows:
            return parts, int(found["offset"][part.num_rows].as_py())
        room -= part.nbytes
        spent += time.monotonic() - began
        yield
    return parts, min(reader.offset, stop)


def _matching(batch: pa.RecordBatch, patterns: list[Pattern]) -> Work[pa.RecordBatch]:
    """`matching`, in steps."""
    if len(patterns) <= PATTERNS_PER_STEP:
        return matching(batch, patterns)
    mask = pa.scalar(False)
    for start in range(0, len(patterns), PATTERNS_PER_STEP):
        for pattern in patterns[start : start + PATTERNS_PER_STEP]:
            mask = pc.or_(mask, mask_of(batch["topic"], pattern))
        yield
    return batch.filter(mask)


def _fitting(batch: pa.RecordBatch, room: int, first: bool) -> pa.RecordBatch:
    """As many rows as fit; at least one of the first batch."""
    rows = batch.num_rows
    while rows and batch.slice(0, rows).nbytes > room:
        rows //= 2
    return batch.slice(0, max(rows, min(1, batch.num_rows)) if first else rows)


class BlockSink(io.RawIOBase):
    """Collects blocks without a copy."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, block: Any) -> int:
        self.blocks.append(block)
        self._size += len(block)
        return len(block)


def _to_stream(parts: list[pa.RecordBatch], schema: pa.Schema, about: dict[str, Any]) -> bytes:
    described = schema.with_metadata({KEY: msgspec.json.encode(about)})
    sink = BlockSink()
    with pa.PythonFile(sink, "w") as file, pa.ipc.new_stream(file, described) as stream:
        for part in parts:
            columns = [part[name] for name in schema.names]
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=described))
    return b"".join(sink.blocks)


# -- positions ----------------------------------------------------------------------------------------------


def check_position(request: PositionRequest) -> None:
    if (request.time is None) == (not request.sequences):
        raise UsageError('expected {"time": microseconds} or {"sequences": {topic: sequence, ...}}')


def find_position(folder: Path, request: PositionRequest, durable_next: int) -> Work[int]:
    """The first message; with several sequences, an offset before which none of them lies."""
    if request.time is not None:
        found = yield from seek_time(folder, request.time / MICROS)
    else:
        sequences = request.sequences or {}
        if len(sequences) == 1:
            [(topic, sequence)] = sequences.items()
            found = yield from seek_sequence(folder, topic, sequence)
        else:
            found = yield from seek_sequences(folder, sequences)
    return min(found, durable_next)


def find_end(end: Work[int], durable_next: int) -> Work[dict[str, int]]:
    found = yield from end
    return {"next": durable_next, "end": min(found, durable_next)}


def size_of(folder: Path) -> dict[str, int]:
    """Size of the log on disk."""
    found = segments(folder)
    return {"segments": len(found), "bytes": sum(map(segment_size, found))}


def first_of(folder: Path, durable_next: int) -> int:
    """The first offset of the log; of an empty log, its next offset."""
    first = first_offset(folder)
    return durable_next if first is None else min(first, durable_next)
