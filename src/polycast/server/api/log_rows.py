"""Rows of the log in columns, by request: for readers on another machine.

    polycast/log                                          {"first", "next", "segments", "bytes", "node", "folder"}
                      {"patterns", "from"?}               {"next", "end"}
    polycast/rows     {"from", "to", "columns"?, "patterns"?, "bytes"?}     bytes: an Arrow IPC stream
    polycast/offsets  {"time": microseconds} or {"sequences": {topic: n}}   {"offset"}

The response has the rows from one offset up to another that match and are durable. The metadata of its schema has
one key, `polycast`, with the JSON {"next", "skipped": [{"first", "next", "reason"}, ...]}: the response may end
before `to`, and `next` is where to continue. `skipped` are gaps: offsets whose messages are missing.

With patterns, `polycast/log` responds to a polling reader whether there are new messages: no message from `end` on
matches. The table of topics knows that; the log is not read. The reader has read up to `from`: messages before it
do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct, field

from polycast.errors import UsageError
from polycast.log.files.folder import segment_size, segments
from polycast.log.files.format import KEY, SCHEMA, Gap
from polycast.log.read.masks import mask_of, matching
from polycast.log.read.reader import Reader
from polycast.log.read.seek import first_offset, seek_sequence, seek_sequences, seek_time
from polycast.log.read.work import Work
from polycast.log.times import MICROS
from polycast.model import Pattern, parse_pattern

BYTES_AT_MOST = 8 * 1024 * 1024
SECONDS_AT_MOST = 0.25
"""Reading time of one request, without the wait for turns."""
PATTERNS_PER_STEP = 100
"""Patterns that one step of work compares: a request can have many thousands."""
PATTERNS_AT_MOST = 1000
"""Maximum number of patterns of a request that is compared with all topics."""
LARGEST = 2**63 - 1
LAST_MICROS = 253_402_300_799_999_999
"""Last microsecond of the year 9999."""

Offset = Annotated[int, Meta(ge=0, le=LARGEST)]


class RowsRequest(Struct, forbid_unknown_fields=True):
    """The body of `polycast/rows`."""

    from_: Offset = field(name="from")
    to: Offset
    columns: Annotated[list[str], Meta(min_length=1)] = field(default_factory=lambda: list(SCHEMA.names))
    patterns: list[str] | None = None
    bytes: Annotated[int, Meta(ge=1, le=BYTES_AT_MOST)] = BYTES_AT_MOST


class LogRequest(Struct, forbid_unknown_fields=True):
    """The body of `polycast/log`."""

    from_: Offset = field(name="from", default=0)
    patterns: Annotated[list[str], Meta(max_length=PATTERNS_AT_MOST)] | None = None


class PositionRequest(Struct, forbid_unknown_fields=True):
    """The body of `polycast/offsets`."""

    time: Annotated[int, Meta(ge=0, le=LAST_MICROS)] | None = None
    sequences: dict[str, Offset] | None = None


class RowsQuery(Struct, frozen=True):
    first: int
    next: int
    columns: Sequence[str]
    patterns: list[Pattern] | None
    bytes: int


# -- rows ------------------------------------------------------------------------------------------------


def to_query(request: RowsRequest, most: int) -> RowsQuery:
    """Raises UsageError for an invalid request."""
    unknown = [name for name in request.columns if name not in SCHEMA.names]
    if unknown:
        raise UsageError(f"there is no column {unknown[0]!r}, the columns are {', '.join(SCHEMA.names)}")
    if len(set(request.columns)) < len(request.columns):
        raise UsageError(f"a column is there twice in {', '.join(request.columns)}")
    patterns = None if request.patterns is None else to_patterns(request.patterns)
    return RowsQuery(request.from_, request.to, request.columns, patterns, min(request.bytes, most))


def to_patterns(texts: Sequence[str]) -> list[Pattern]:
    return [parse_pattern(text) for text in texts]


def read_rows(
    folder: Path, wanted: RowsQuery, durable_next: int, on_skipped: Callable[[Gap], None] = lambda gap: None
) -> Work[bytes]:
    """Rows of messages before the offset `durable_next`."""
    stop = max(wanted.first, min(wanted.next, durable_next))
    reader = Reader(folder, wanted.first, _needed(wanted))
    try:
        parts, after = yield from _collect(reader, wanted, stop)
    finally:
        reader.close()
    for gap in reader.skipped:
        on_skipped(gap)
    lost = [gap for gap in reader.skipped if gap.first < after]
    skipped = [Gap(gap.first, min(gap.next, after), gap.reason) for gap in lost]
    return _to_stream(parts, wanted.columns, after, skipped)


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


def _to_stream(parts: list[pa.RecordBatch], columns: Sequence[str], after: int, skipped: list[Gap]) -> bytes:
    about = msgspec.json.encode({"next": after, "skipped": skipped})
    schema = pa.schema([SCHEMA.field(name) for name in columns], {KEY: about})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for part in parts:
            stream.write_batch(pa.RecordBatch.from_arrays([part[name] for name in columns], schema=schema))
    return bytes(sink.getvalue())


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
