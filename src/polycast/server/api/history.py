"""`polycast/history`: messages of the log, by request.

    {"pattern": P, "from"?: as hermod has it, "since"?: offset, "limit"?: N, "bodies"?: true}
    [{"topic", "sequence", "offset", "dialect", "time", "format", "body"}, ...]
    {"missing": {"first", "next", "reason"}} among them stands for messages that the log cannot deliver

Without `from`: the last N messages; with it: the first N from there on. Oldest first in both cases. `since` leaves
out messages with a lower offset: a requester that has read up to there waits for no more. Without `bodies` every
`body` is null, and the payloads are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from msgspec import Meta, Raw, Struct, field

from polycast.dialects.json_bodies import to_json
from polycast.dialects.start_positions import read_start_positions
from polycast.log.files.format import REMOVED, Gap
from polycast.log.read import query
from polycast.log.read.gaps import covering
from polycast.log.read.seek import first_offset, is_removed, seek_sequence, seek_time
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import Work
from polycast.log.times import to_micros
from polycast.model import Exact, Format, Pattern, StartPosition, parse_pattern

LIMIT = 10_000
LARGEST = 2**63 - 1
BYTES_AT_MOST = 8 * 1024 * 1024
"""The size of a response; it ends early at this limit."""
PIECE_BYTES = 256 * 1024
"""A response exceeds its size by one such piece of the log, or by one message."""
NO_BODY = Raw(b"null")
COLUMNS = ("topic", "sequence", "offset", "dialect", "time", "format", "payload")


class HistoryRequest(Struct, forbid_unknown_fields=True):
    pattern: str
    from_: Any = field(name="from", default=None)
    since: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    limit: Annotated[int, Meta(ge=1, le=LIMIT)] = 100
    bodies: bool = True


class HistoryRow(Struct):
    topic: str
    sequence: int
    offset: int
    dialect: str
    time: str
    format: str
    body: Raw


class MissingRange(Struct):
    first: int
    next: int
    reason: str


class MissingRow(Struct):
    """In place of messages that the log cannot deliver."""

    missing: MissingRange


Rows = list[HistoryRow | MissingRow]


class HistoryQuery(Struct, frozen=True):
    pattern: Pattern
    start: StartPosition | None
    limit: int
    since: int = 0
    ended: bool = False
    """Whether the request matches nothing that the log has now."""
    bodies: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return COLUMNS if self.bodies else COLUMNS[:-1]


def to_query(request: HistoryRequest) -> HistoryQuery:
    """Raises UsageError or ProtocolError for an invalid request."""
    pattern = parse_pattern(request.pattern)
    if request.from_ is None:
        return HistoryQuery(pattern, None, request.limit, request.since, bodies=request.bodies)
    exact = [pattern.value] if isinstance(pattern, Exact) else []
    start = read_start_positions(request.from_, exact).of(pattern.value)
    return HistoryQuery(pattern, start, request.limit, request.since, ended=start is None, bodies=request.bodies)


def read_history(
    index: SegmentIndex,
    wanted: HistoryQuery,
    newest: Work[int],
    stop: int,
    recorded: Sequence[Gap] = (),
    on_skipped: Callable[[Gap], None] = lambda gap: None,
) -> Work[Rows]:
    """Reads messages before the offset `stop`, and before the one that `newest` finds for the pattern.

    `recorded`: the gaps that the log records."""
    if wanted.ended:
        return []
    stop = min(stop, (yield from newest))
    if stop <= wanted.since:
        return []
    skipped: list[Gap] = []
    if wanted.start is None:
        rows, full = yield from _last(index, wanted, stop, skipped)
        first = rows[0].offset if full else wanted.since
    else:
        first = max(wanted.since, (yield from seek(index.folder, wanted.pattern, wanted.start)))
        rows, full = yield from _collect(index, wanted, first, stop, skipped)
        stop = rows[-1].offset + 1 if full else stop
        skipped += removed(index.folder, wanted, recorded)
    for gap in skipped:
        on_skipped(gap)
    return _with_missing(rows, missing(first, stop, skipped, recorded))


def missing(first: int, stop: int, skipped: Iterable[Gap], recorded: Iterable[Gap]) -> list[MissingRange]:
    """The messages that a read between these offsets misses."""
    known = [
        Gap(max(gap.first, first), gap.next, gap.reason) for gap in recorded if gap.missed and first < gap.next
    ]
    causes = {(gap.first, gap.next): gap.cause for gap in (*known, *skipped) if gap.first < stop}
    return [MissingRange(*span, cause) for span, cause in sorted(causes.items())]


def _with_missing(rows: list[HistoryRow], missing: list[MissingRange]) -> Rows:
    """All in the order of offsets."""
    added = [(each.first, MissingRow(each)) for each in missing]
    both: list[tuple[int, HistoryRow | MissingRow]] = [*((row.offset, row) for row in rows), *added]
    return [row for _, row in sorted(both, key=itemgetter(0))] if missing else [*rows]


def removed(folder: Path, wanted: HistoryQuery, recorded: Sequence[Gap]) -> list[Gap]:
    """The messages at the requested position that retention has removed."""
    start, first = wanted.start or StartPosition(), first_offset(folder) or 0
    if start.offset is not None:
        start_offset = start.offset
    else:
        micros = None if start.seconds is None else to_micros(start.seconds)
        sequences = None if start.sequence is None else {wanted.pattern.value: start.sequence}
        start_offset = 0 if is_removed(folder, micros, sequences) else first
    start_offset = max(start_offset, wanted.since)
    return (
        [Gap(start_offset, first, REMOVED)]
        if start_offset < first and not covering(recorded, start_offset, first)
        else []
    )


def seek(folder: Path, pattern: Pattern, start: StartPosition) -> Work[int]:
    if start.sequence is not None:
        return (yield from seek_sequence(folder, pattern.value, start.sequence))
    if start.seconds is not None:
        return (yield from seek_time(folder, start.seconds))
    return first_offset(folder) or 0 if start.offset is None else start.offset


def _collect(
    index: SegmentIndex, wanted: HistoryQuery, offset: int, stop: int, skipped: list[Gap]
) -> Work[tuple[list[HistoryRow], bool]]:
    """The rows, and whether the response is full. Appends gaps to `skipped`."""
    rows: list[HistoryRow] = []
    size = 0
    rule = query.RowFilter((wanted.pattern,))
    for stretches in index.ranges(rule, offset, stop):
        yield
        for stretch in stretches:
            batches = query.query_rows(index.folder, [stretch], rule, wanted.columns, skipped.append)
            for batch in query.pieces(batches, PIECE_BYTES):
                found = batch.slice(0, wanted.limit - len(rows))
                size += found.nbytes
                rows += _to_rows(found)
                if len(rows) >= wanted.limit or size >= BYTES_AT_MOST:
                    return rows, True
            yield
    return rows, False


def _last(
    index: SegmentIndex, wanted: HistoryQuery, stop: int, skipped: list[Gap]
) -> Work[tuple[list[HistoryRow], bool]]:
    """As `_collect`, from the newest stretch to older ones."""
    parts: list[pa.RecordBatch] = []
    rule = query.RowFilter((wanted.pattern,))
    for stretches in index.ranges_backwards(rule, wanted.since, stop):
        yield
        for stretch in stretches:
            batches = query.query_rows(index.folder, [stretch], rule, wanted.columns, skipped.append)
            found = query.pieces(batches, PIECE_BYTES)
            parts = _last_parts([*found, *parts], wanted)
            yield
            if _suffice(parts, wanted):
                return _to_last_rows(parts, wanted), True
    return _to_last_rows(parts, wanted), False


def _last_parts(parts: list[pa.RecordBatch], wanted: HistoryQuery) -> list[pa.RecordBatch]:
    """The last parts that suffice."""
    count = size = start = 0
    for start in reversed(range(len(parts))):
        count, size = count + parts[start].num_rows, size + parts[start].nbytes
        if count >= wanted.limit or size >= BYTES_AT_MOST:
            break
    return parts[start:]


def _to_last_rows(parts: list[pa.RecordBatch], wanted: HistoryQuery) -> list[HistoryRow]:
    return [row for part in parts for row in _to_rows(part)][-wanted.limit :]


def _suffice(parts: list[pa.RecordBatch], wanted: HistoryQuery) -> bool:
    count, size = sum(part.num_rows for part in parts), sum(part.nbytes for part in parts)
    return bool(count >= wanted.limit or size >= BYTES_AT_MOST)


def _to_rows(batch: pa.RecordBatch) -> list[HistoryRow]:
    *columns, times, formats = (batch[name].to_pylist() for name in COLUMNS[:-1])
    bodies: Iterable[Raw] = repeat(NO_BODY)
    if COLUMNS[-1] in batch.schema.names:
        pairs = zip(batch[COLUMNS[-1]].to_pylist(), map(Format, formats), strict=True)
        bodies = [Raw(to_json(payload, format_) or NO_BODY) for payload, format_ in pairs]
    return list(map(HistoryRow, *columns, (time.isoformat() for time in times), formats, bodies))
