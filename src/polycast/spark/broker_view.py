"""Reads the log through a broker, for workers that cannot access its files. Each task requests its own rows.

The broker sends row groups of sealed segments as they are in the file, and the task decodes and verifies them. If
that fails, the task requests the same rows decoded: the broker reads the file again, and reports what is damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from polycast.broker import requests
from polycast.client.connect import to_client_session
from polycast.client.connection import ClientConnection
from polycast.dialects.client_requests import to_body
from polycast.errors import LogDamageError, RefusedError, RemoteError
from polycast.log.files.format import KEY, SCHEMA, Gap
from polycast.log.files.sealed import SealedReader
from polycast.log.read.catalog import SegmentPart
from polycast.log.read.query import BATCH_ROWS, OffsetRange, RowFilter, matching_rows
from polycast.model import Pattern
from polycast.spark.brokers import STOPPING, Brokers

log = logging.getLogger("polycast.spark")

STRETCH_OFFSETS = 100_000
"""Offsets per piece: the broker does not expose its segments."""
ROW_BYTES = 150
"""The estimated size of a row, to size partitions."""
REFUSED = 400


class RowsHeader(msgspec.Struct):
    """Metadata of a response with rows."""

    next: int
    skipped: list[Gap]
    row_groups: list[int] = []
    """The response has their bytes in place of rows."""


class BrokerView:
    def __init__(self, at: str, retry_seconds: float, number: int = 0) -> None:
        self._brokers = Brokers(at, retry_seconds, first=number)
        self._client: ClientConnection | None = None

    def first(self) -> int:
        return int(self._request("polycast/log", {})["first"])

    def next(self) -> int:
        return int(self._request("polycast/log", {})["next"])

    def reach(self, offset: int) -> int:
        """Tries all nodes: one may have applied more than another."""
        if not self._brokers.are_several:
            return self.next()
        return self._brokers.run(lambda at: self._reach_at(at, offset))

    def _reach_at(self, at: str, offset: int) -> int:
        after = int(self._request_at(at, "polycast/log", {})["next"])
        self._check_progress(after >= offset, offset, after)
        return after

    def _check_progress(self, done: bool, offset: int, after: int) -> None:
        """Raises a transient refusal if this node has not applied the messages yet; `Brokers` then tries another
        node."""
        if not done:
            address = self._client.address if self._client else ""
            self.close()
            raise RefusedError(f"{address} has no offset {offset:,} yet: its log ends at {after:,}", STOPPING)

    def end(self, patterns: Sequence[Pattern], start: int) -> tuple[int, bool]:
        found = self._request("polycast/log", {"patterns": list(map(str, patterns)), "from": start})
        return int(found["next"]), int(found["end"]) > start

    def at_time(self, micros: int) -> int:
        return int(self._request("polycast/offsets", {"time": micros})["offset"])

    def at_sequences(self, sequences: Mapping[str, int]) -> int:
        return int(self._request("polycast/offsets", {"sequences": dict(sequences)})["offset"])

    def parts(self, start: int, stop: int) -> list[SegmentPart]:
        edges = [*range(start, stop, STRETCH_OFFSETS), stop]
        return [SegmentPart(first, after, (after - first) * ROW_BYTES) for first, after in pairwise(edges)]

    def query_rows(
        self,
        ranges: Sequence[OffsetRange],
        wanted: RowFilter,
        columns: Sequence[str],
        on_skipped: Callable[[Gap], None],
    ) -> Iterator[pa.RecordBatch]:
        needed = [name for name in SCHEMA.names if name in {*columns, *wanted.columns, "offset"}]
        for first, after in join_ranges(ranges):
            for batch in self._batches(first, after, needed, wanted, on_skipped):
                rows = matching_rows(batch, wanted)
                if rows.num_rows:
                    yield rows.select(columns)

    def _batches(
        self, first: int, after: int, columns: list[str], wanted: RowFilter, on_skipped: Callable[[Gap], None]
    ) -> Iterator[pa.RecordBatch]:
        """All rows of a range, or those that match the patterns."""
        damaged = False
        while first < after:
            header, batches = self._rows(first, after, columns, wanted, not damaged)
            for gap in header.skipped:
                on_skipped(gap)
            damaged = False
            if not header.row_groups:
                yield from batches
                first = header.next
                continue
            try:
                for end, batch in decode(header.row_groups, batches, columns, first, after):
                    yield batch
                    first = end
            except LogDamageError as error:
                log.warning("%s; the broker reads these rows itself", error)
                damaged = True

    def close(self) -> None:
        if self._client:
            self._client.disconnect()
        self._client = None

    def _rows(
        self, offset: int, stop: int, columns: list[str], wanted: RowFilter, row_groups: bool
    ) -> tuple[RowsHeader, list[pa.RecordBatch]]:
        request: dict[str, Any] = {"from": offset, "to": stop, "columns": columns, "row_groups": row_groups}
        if wanted.patterns is not None:
            request["patterns"] = [str(pattern) for pattern in wanted.patterns]
        return self._brokers.run(lambda at: self._rows_at(at, request))

    def _rows_at(self, at: str, request: dict[str, Any]) -> tuple[RowsHeader, list[pa.RecordBatch]]:
        with pa.ipc.open_stream(self._request_at(at, "polycast/rows", request)) as stream:
            header = msgspec.json.decode(stream.schema.metadata[KEY], type=RowsHeader)
            self._check_progress(header.next > request["from"], request["from"], header.next)
            return header, [batch.replace_schema_metadata() for batch in stream]

    def _request(self, route: str, body: dict[str, Any]) -> Any:
        return self._brokers.run(lambda at: self._request_at(at, route, body))

    def _request_at(self, at: str, route: str, body: dict[str, Any]) -> Any:
        if self._client is None:
            self._client = ClientConnection(to_client_session("hermod", at, publishing=True))
        try:
            response = self._client.request(route, to_body(body))
        except RemoteError:
            self.close()
            raise
        if not response.success:
            refusal = _to_refusal(self._client, str(response.value))
            if refusal.code == STOPPING:
                self.close()  # the next attempt may use another node
            raise refusal
        return response.value


def join_ranges(ranges: Iterable[OffsetRange]) -> list[tuple[int, int]]:
    """Adjacent ranges as one: a response ends where a row group ends, not at the planned pieces."""
    joined: list[tuple[int, int]] = []
    for each in ranges:
        if joined and joined[-1][1] == each.first:
            joined[-1] = (joined[-1][0], each.next)
        else:
            joined.append((each.first, each.next))
    return joined


def decode(
    numbers: Sequence[int], extracts: Iterable[pa.RecordBatch], columns: Sequence[str], first: int, after: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of row groups between two offsets, and the offset after each batch. Raises LogDamageError."""
    for extracted in extracts:
        with SealedReader(Path("row groups of a broker"), extracted) as reader:
            for number in numbers:
                row_group = reader.metadata.row_groups[number]
                batch = reader.read(number, columns)
                stop = min(after, row_group.next)
                for start in range(max(first, row_group.first), stop, BATCH_ROWS):
                    end = min(start + BATCH_ROWS, stop)
                    yield end, batch.slice(start - row_group.first, end - start)


def _to_refusal(client: ClientConnection, message: str) -> RefusedError:
    passes = message.partition(":")[0] in (requests.GONE, requests.BUSY)
    hint = "" if passes else "the broker needs a log: polycast serve --data DIR"
    return RefusedError(f"{client.address}: {message}", STOPPING if passes else REFUSED, hint)
