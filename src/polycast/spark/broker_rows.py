"""The rows of an offset range from a broker, over as many requests as needed.

The broker sends row groups of sealed segments as they are in the file, and the task decodes and verifies them. If
that fails, the task requests the same rows decoded: the broker reads the file again, and reports what is damaged.

While Spark takes the rows of one response, the next one is requested in a thread: the broker, the network and the
task work at the same time. The thread receives the whole response, so that a slow query holds no memory of the
broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from polycast.errors import LogDamageError
from polycast.log.files.format import KEY, Gap
from polycast.log.files.sealed import SealedReader
from polycast.log.read.query import BATCH_ROWS, OffsetRange

log = logging.getLogger("polycast.spark")

RowsRequest = dict[str, Any]
"""The body of `polycast/rows`."""


class RowsHeader(msgspec.Struct):
    """Metadata of a response with rows."""

    next: int
    skipped: list[Gap]
    row_groups: list[int] = []
    """The response has their bytes in place of rows."""


class RowsResponse(NamedTuple):
    header: RowsHeader
    batches: list[pa.RecordBatch]


class RowsClient(Protocol):
    """For one thread at a time."""

    def request_rows(self, request: RowsRequest) -> RowsResponse:
        """Tries all brokers, again and again."""
        ...

    def try_rows(self, request: RowsRequest) -> RowsResponse | None:
        """Tries once. None if that fails."""
        ...


def to_response(body: bytes) -> RowsResponse:
    with pa.ipc.open_stream(body) as stream:
        header = msgspec.json.decode(stream.schema.metadata[KEY], type=RowsHeader)
        return RowsResponse(header, [batch.replace_schema_metadata() for batch in stream])


def join_ranges(ranges: Iterable[OffsetRange]) -> list[tuple[int, int]]:
    """Adjacent ranges as one: a response ends where a row group ends, not at the planned pieces."""
    joined: list[tuple[int, int]] = []
    for each in ranges:
        if joined and joined[-1][1] == each.first:
            joined[-1] = (joined[-1][0], each.next)
        else:
            joined.append((each.first, each.next))
    return joined


def fetch_rows(
    client: RowsClient, first: int, after: int, request: RowsRequest, on_skipped: Callable[[Gap], None]
) -> Generator[pa.RecordBatch, None, None]:
    """All rows from the offset `first` up to `after`, or those that match the patterns of the request."""
    ahead: Future[RowsResponse | None] | None = None
    row_groups = True
    with ThreadPoolExecutor(1, "rows-ahead") as thread:  # at its end it waits for the response
        while first < after:
            response = ahead.result() if ahead else None
            if response is None or not row_groups:
                response = client.request_rows({**request, "from": first, "to": after, "row_groups": row_groups})
            header = response.header
            following = {**request, "from": header.next, "to": after, "row_groups": True}
            ahead = thread.submit(client.try_rows, following) if header.next < after else None
            for gap in header.skipped:
                on_skipped(gap)
            row_groups = True
            try:
                for end, batch in decode(response, request["columns"], first, after):
                    yield batch
                    first = end
                first = header.next
            except LogDamageError as error:
                log.warning("%s; the broker reads these rows itself", error)
                row_groups = False


def decode(
    response: RowsResponse, columns: Sequence[str], first: int, after: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows between two offsets, and the offset after each batch. Raises LogDamageError."""
    header, batches = response
    for batch in batches:
        if header.row_groups:
            yield from _decode_row_groups(batch, header.row_groups, columns, first, after)
        else:
            yield header.next, batch


def _decode_row_groups(
    extracted: pa.RecordBatch, numbers: Sequence[int], columns: Sequence[str], first: int, after: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    with SealedReader(Path("row groups of a broker"), extracted) as reader:
        for number in numbers:
            row_group = reader.metadata.row_groups[number]
            rows = reader.read(number, columns)
            stop = min(after, row_group.next)
            for start in range(max(first, row_group.first), stop, BATCH_ROWS):
                end = min(start + BATCH_ROWS, stop)
                yield end, rows.slice(start - row_group.first, end - start)
