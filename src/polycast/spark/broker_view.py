"""Reads the log through a broker, for workers that cannot access its files. Each task requests its own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import pyarrow as pa

from polycast.broker import requests
from polycast.client.connect import to_client_session
from polycast.client.connection import ClientConnection
from polycast.dialects.client_requests import to_body
from polycast.errors import RefusedError, RemoteError
from polycast.log.files.format import SCHEMA, Gap
from polycast.log.read.catalog import SegmentPart
from polycast.log.read.query import OffsetRange, RowFilter, matching_rows
from polycast.model import Pattern
from polycast.spark.broker_rows import RowsRequest, RowsResponse, fetch_rows, join_ranges, to_response
from polycast.spark.brokers import STOPPING, Brokers

STRETCH_OFFSETS = 100_000
"""Offsets per piece: the broker does not expose its segments."""
ROW_BYTES = 150
"""The estimated size of a row, to size partitions."""
REFUSED = 400


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
        request: RowsRequest = {"columns": needed}
        if wanted.patterns is not None:
            request["patterns"] = [str(pattern) for pattern in wanted.patterns]
        for first, after in join_ranges(ranges):
            with closing(fetch_rows(self, first, after, request, on_skipped)) as batches:
                for batch in batches:
                    rows = matching_rows(batch, wanted)
                    if rows.num_rows:
                        yield rows.select(columns)

    def close(self) -> None:
        if self._client:
            self._client.disconnect()
        self._client = None

    def request_rows(self, request: RowsRequest) -> RowsResponse:
        return self._brokers.run(lambda at: self._rows_at(at, request))

    def try_rows(self, request: RowsRequest) -> RowsResponse | None:
        try:
            return self._rows_at(self._brokers.current, request)
        except RemoteError:
            return None

    def _rows_at(self, at: str, request: RowsRequest) -> RowsResponse:
        response = to_response(self._request_at(at, "polycast/rows", request))
        self._check_progress(response.header.next > request["from"], request["from"], response.header.next)
        return response

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


def _to_refusal(client: ClientConnection, message: str) -> RefusedError:
    passes = message.partition(":")[0] in (requests.GONE, requests.BUSY)
    hint = "" if passes else "the broker needs a log: polycast serve --data DIR"
    return RefusedError(f"{client.address}: {message}", STOPPING if passes else REFUSED, hint)
