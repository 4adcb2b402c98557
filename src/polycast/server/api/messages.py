"""`polycast/messages`: messages of one topic from the log, page by page.

    {"topic": T, "from"?: as hermod has it, "limit"?: N}
    {"messages": [...], "next": OFFSET, "log": ID, "gaps"?: [{"first", "next", "reason"}]}

The objects of messages are described in `dialects.web.message_json`.

The next page starts at `"@OFFSET"` with the offset `next`; at the end of the log, that is where new messages will
be. `gaps` are ranges of offsets, of any topic, that the log cannot deliver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from polycast.dialects.start_positions import read_start_positions
from polycast.dialects.web.message_json import to_objects
from polycast.log.files.bursts import to_bursts
from polycast.log.files.format import Gap
from polycast.log.read import query
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import Work
from polycast.model import Exact
from polycast.server.api.history import (
    BYTES_AT_MOST,
    LIMIT,
    PIECE_BYTES,
    HistoryQuery,
    MissingRange,
    missing,
    removed,
    seek,
)

COLUMNS = ("offset", "topic", "sequence", "time", "format", "payload")


class MessagesRequest(Struct, forbid_unknown_fields=True):
    topic: str
    from_: Any = field(name="from", default="earliest")
    limit: Annotated[int, Meta(ge=1, le=LIMIT)] = 100


def to_query(request: MessagesRequest) -> HistoryQuery:
    """Raises ProtocolError for an invalid request."""
    start = read_start_positions(request.from_, [request.topic]).of(request.topic)
    return HistoryQuery(Exact(request.topic), start, request.limit, ended=start is None)


def read_messages(
    index: SegmentIndex,
    wanted: HistoryQuery,
    newest: Work[int],
    stop: int,
    recorded: Sequence[Gap],
    on_skipped: Callable[[Gap], None],
    log_id: str,
) -> Work[bytes]:
    """As `read_history`."""
    if wanted.start is None:
        return _to_json([], stop, log_id, [])
    last = min(stop, (yield from newest))
    first = yield from seek(index.folder, wanted.pattern, wanted.start)
    skipped: list[Gap] = []
    messages, after = yield from _collect(index, wanted, first, last, skipped)
    skipped += removed(index.folder, wanted, recorded)
    for gap in skipped:
        on_skipped(gap)
    after = max(first, stop) if after is None else after
    return _to_json(messages, after, log_id, missing(first, after, skipped, recorded))


def _collect(
    index: SegmentIndex, wanted: HistoryQuery, offset: int, stop: int, skipped: list[Gap]
) -> Work[tuple[list[bytes], int | None]]:
    """The messages, and the offset after the last one if more may follow."""
    found: list[bytes] = []
    size = 0
    rule = query.RowFilter((wanted.pattern,))
    for ranges in index.ranges(rule, offset, stop):
        yield
        for each in ranges:
            batches = query.query_rows(index.folder, [each], rule, COLUMNS, skipped.append)
            for batch in query.pieces(batches, PIECE_BYTES):
                for burst in to_bursts(batch.slice(0, wanted.limit - len(found))):
                    texts = [text for _, text in to_objects(burst)]
                    found += texts
                    size += sum(map(len, texts))
                    if len(found) >= wanted.limit or size >= BYTES_AT_MOST:
                        return found, burst.offset + len(burst)
            yield
    return found, None


def _to_json(messages: list[bytes], after: int, log_id: str, gaps: list[MissingRange]) -> bytes:
    more = b',"gaps":' + msgspec.json.encode(gaps) if gaps else b""
    return b'{"messages":[%b],"next":%d,"log":"%b"%b}' % (b",".join(messages), after, log_id.encode(), more)
