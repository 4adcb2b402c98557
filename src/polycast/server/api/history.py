"""`polycast/history`: messages of the log, by request.

    {"pattern": P, "from"?: as hermod has it, "since"?: offset, "limit"?: N}
    [{"topic", "sequence", "offset", "dialect", "time", "format", "body"}, ...]

Without `from`: the last N messages; with it: the first N from there on. Oldest first in both cases. `since` leaves
out messages with a lower offset: a requester that has read up to there waits for no more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from msgspec import Meta, Raw, Struct, field

from polycast.dialects.json_bodies import to_json
from polycast.dialects.start_positions import read_start_positions
from polycast.log.read import query
from polycast.log.read.seek import first_offset, seek_sequence, seek_time
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import Work
from polycast.model import Exact, Format, Pattern, StartPosition, parse_pattern

LIMIT = 10_000
LARGEST = 2**63 - 1
BYTES_AT_MOST = 8 * 1024 * 1024
"""The size of a response; it ends early at this limit."""
COLUMNS = ("topic", "sequence", "offset", "dialect", "time", "format", "payload")


class HistoryRequest(Struct, forbid_unknown_fields=True):
    pattern: str
    from_: Any = field(name="from", default=None)
    since: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    limit: Annotated[int, Meta(ge=1, le=LIMIT)] = 100


class HistoryRow(Struct):
    topic: str
    sequence: int
    offset: int
    dialect: str
    time: str
    format: str
    body: Raw


class HistoryQuery(Struct, frozen=True):
    pattern: Pattern
    start: StartPosition | None
    limit: int
    since: int = 0
    ended: bool = False
    """Whether the request matches nothing that the log has now."""


def to_query(asked: HistoryRequest) -> HistoryQuery:
    """Raises UsageError or ProtocolError for an invalid request."""
    pattern = parse_pattern(asked.pattern)
    if asked.from_ is None:
        return HistoryQuery(pattern, None, asked.limit, asked.since)
    exact = [pattern.value] if isinstance(pattern, Exact) else []
    start = read_start_positions(asked.from_, exact).of(pattern.value)
    return HistoryQuery(pattern, start, asked.limit, asked.since, ended=start is None)


def read_history(
    index: SegmentIndex, wanted: HistoryQuery, newest: Work[int], stop: int
) -> Work[list[HistoryRow]]:
    """Reads messages before the offset `stop`, and before the one that `newest` finds for the pattern."""
    if wanted.ended:
        return []
    stop = min(stop, (yield from newest))
    if stop <= wanted.since:
        return []
    if wanted.start is None:
        return (yield from _last(index, wanted, stop))
    found = yield from _seek(index.folder, wanted.pattern, wanted.start)
    return (yield from _collect(index, wanted, max(found, wanted.since), stop))


def _seek(folder: Path, pattern: Pattern, start: StartPosition) -> Work[int]:
    if start.sequence is not None:
        return (yield from seek_sequence(folder, pattern.value, start.sequence))
    if start.seconds is not None:
        return (yield from seek_time(folder, start.seconds))
    return first_offset(folder) or 0


def _collect(index: SegmentIndex, wanted: HistoryQuery, offset: int, stop: int) -> Work[list[HistoryRow]]:
    rows: list[HistoryRow] = []
    size = 0
    rule = query.RowFilter((wanted.pattern,))
    for stretches in index.ranges(rule, offset, stop):
        yield
        for stretch in stretches:
            for batch in query.query_rows(index.folder, [stretch], rule, COLUMNS):
                found = batch.slice(0, wanted.limit - len(rows))
                size += found.nbytes
                rows += _to_rows(found)
                if len(rows) >= wanted.limit or size >= BYTES_AT_MOST:
                    return rows
            yield
    return rows


def _last(index: SegmentIndex, wanted: HistoryQuery, stop: int) -> Work[list[HistoryRow]]:
    """From the newest stretch to older ones, until there are enough."""
    parts: list[pa.RecordBatch] = []
    rule = query.RowFilter((wanted.pattern,))
    for stretches in index.ranges_backwards(rule, wanted.since, stop):
        yield
        for stretch in stretches:
            parts = _last_parts([*query.query_rows(index.folder, [stretch], rule, COLUMNS), *parts], wanted)
            yield
            if _suffice(parts, wanted):
                return _to_last_rows(parts, wanted)
    return _to_last_rows(parts, wanted)


def _last_parts(parts: list[pa.RecordBatch], wanted: HistoryQuery) -> list[pa.RecordBatch]:
    """The last parts that suffice."""
    while _suffice(parts[1:], wanted):
        parts = parts[1:]
    return parts


def _to_last_rows(parts: list[pa.RecordBatch], wanted: HistoryQuery) -> list[HistoryRow]:
    return [row for part in parts for row in _to_rows(part)][-wanted.limit :]


def _suffice(parts: list[pa.RecordBatch], wanted: HistoryQuery) -> bool:
    count, size = sum(part.num_rows for part in parts), sum(part.nbytes for part in parts)
    return bool(count >= wanted.limit or size >= BYTES_AT_MOST)


def _to_rows(batch: pa.RecordBatch) -> list[HistoryRow]:
    *columns, times, formats, payloads = (batch[name].to_pylist() for name in COLUMNS)
    pairs = zip(payloads, map(Format, formats), strict=True)
    bodies = [Raw(to_json(payload, format_) or b"null") for payload, format_ in pairs]
    return list(map(HistoryRow, *columns, (time.isoformat() for time in times), formats, bodies))
