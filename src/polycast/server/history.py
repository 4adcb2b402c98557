"""`polycast/history`: what was said, by request.

    {"pattern": P, "from"?: as hermod has it, "since"?: offset, "limit"?: N}
    [{"topic", "sequence", "offset", "dialect", "time", "format", "body"}, ...]

Without `from` these are the last N messages, else the first N from there on; oldest first either way. With `since`
only what has that offset or a higher one is looked at: who has read up to there need not wait for more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from msgspec import Meta, Raw, Struct, field

from polycast.dialects.hermod.starts import read_starts
from polycast.dialects.ubre.messages import to_json
from polycast.log.filters import matching
from polycast.log.folder import segments
from polycast.log.places import find_sequence, find_time, first_offset
from polycast.log.reader import Reader
from polycast.model import Exact, Format, Pattern, Start, parse_pattern

LIMIT = 10_000
LARGEST = 2**63 - 1
BYTES_AT_MOST = 8 * 1024 * 1024
"""What one answer may hold; it ends early where that is reached."""
COLUMNS = ("topic", "sequence", "offset", "dialect", "time", "format", "payload")


class History(Struct, forbid_unknown_fields=True):
    pattern: str
    from_: Any = field(name="from", default=None)
    since: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    limit: Annotated[int, Meta(ge=1, le=LIMIT)] = 100


class Row(Struct):
    topic: str
    sequence: int
    offset: int
    dialect: str
    time: str
    format: str
    body: Raw


class Wanted(Struct, frozen=True):
    pattern: Pattern
    start: Start | None
    limit: int
    since: int = 0
    ended: bool = False
    """Whether nothing that was kept so far is asked for."""


def to_wanted(asked: History) -> Wanted:
    """Raises UsageError or ProtocolError for what cannot be."""
    pattern = parse_pattern(asked.pattern)
    if asked.from_ is None:
        return Wanted(pattern, None, asked.limit, asked.since)
    exact = [pattern.value] if isinstance(pattern, Exact) else []
    start = read_starts(asked.from_, exact).of(pattern.value)
    return Wanted(pattern, start, asked.limit, asked.since, ended=start is None)


def read_history(folder: Path, wanted: Wanted, stop: int) -> list[Row]:
    """Of what lies before the offset `stop`."""
    if wanted.ended:
        return []
    if wanted.start is None:
        return _last(folder, wanted, stop)
    found = _find(folder, wanted.pattern, wanted.start)
    return _collect(folder, wanted, max(found, wanted.since), stop)


def _find(folder: Path, pattern: Pattern, start: Start) -> int:
    if start.sequence is not None:
        return find_sequence(folder, pattern.value, start.sequence)
    return first_offset(folder) or 0 if start.seconds is None else find_time(folder, start.seconds)


def _collect(folder: Path, wanted: Wanted, offset: int, stop: int) -> list[Row]:
    reader = Reader(folder, offset)
    rows: list[Row] = []
    size = 0
    try:
        while len(rows) < wanted.limit and size < BYTES_AT_MOST and (batch := reader.read(stop)):
            found = matching(batch, [wanted.pattern]).slice(0, wanted.limit - len(rows))
            size += found.nbytes
            rows += _to_rows(found)
    finally:
        reader.close()
    return rows


def _last(folder: Path, wanted: Wanted, stop: int) -> list[Row]:
    """From the newest segment to older ones, until there are enough."""
    parts: list[pa.RecordBatch] = []
    after = stop
    for segment in reversed(segments(folder)):
        parts = _matching_in(folder, wanted, max(segment.first, wanted.since), min(after, stop)) + parts
        after = segment.first
        if after <= wanted.since or _suffice(parts, wanted):
            break
    while _suffice(parts[1:], wanted):
        parts.pop(0)
    return [row for part in parts for row in _to_rows(part)][-wanted.limit :]


def _matching_in(folder: Path, wanted: Wanted, first: int, stop: int) -> list[pa.RecordBatch]:
    """The last of the rows between two offsets, as many as are wanted and a few more."""
    reader = Reader(folder, first)
    parts: list[pa.RecordBatch] = []
    try:
        while batch := reader.read(stop):
            parts.append(matching(batch, [wanted.pattern]))
            while _suffice(parts[1:], wanted):
                parts.pop(0)
    finally:
        reader.close()
    return parts


def _suffice(parts: list[pa.RecordBatch], wanted: Wanted) -> bool:
    count, size = sum(part.num_rows for part in parts), sum(part.nbytes for part in parts)
    return bool(count >= wanted.limit or size >= BYTES_AT_MOST)


def _to_rows(batch: pa.RecordBatch) -> list[Row]:
    *columns, times, formats, payloads = (batch[name].to_pylist() for name in COLUMNS)
    pairs = zip(payloads, map(Format, formats), strict=True)
    bodies = [Raw(to_json(payload, format_) or b"null") for payload, format_ in pairs]
    return list(map(Row, *columns, (time.isoformat() for time in times), formats, bodies))
