"""Reads the log through a broker, for workers that cannot access its files. Each task requests its own rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa

from polycast.client.blocking import Client
from polycast.client.connect import to_client_session
from polycast.dialects.client_requests import to_body
from polycast.errors import RemoteError
from polycast.log.files.format import KEY, SCHEMA, Gap
from polycast.log.read.catalog import SegmentPart
from polycast.log.read.query import OffsetRange, RowFilter, matching_rows

STRETCH_OFFSETS = 100_000
"""Offsets per piece: the broker does not expose its segments."""
ROW_BYTES = 150
"""Estimated, to size partitions."""
PAUSE_SECONDS = 0.03


class RowsHeader(msgspec.Struct):
    """Metadata of a response with rows."""

    next: int
    skipped: list[Gap]


class BrokerView:
    def __init__(self, at: str) -> None:
        self._at = at
        self._client: Client | None = None
        self._polled = 0.0

    def first(self) -> int:
        return int(self._request("polycast/log", {})["first"])

    def next(self) -> int:
        """Rate-limited: an idle query polls many times a second."""
        time.sleep(max(0.0, self._polled + PAUSE_SECONDS - time.monotonic()))
        self._polled = time.monotonic()
        return int(self._request("polycast/log", {})["next"])

    def at_time(self, micros: int) -> int:
        return int(self._request("polycast/places", {"time": micros})["offset"])

    def at_sequences(self, sequences: Mapping[str, int]) -> int:
        return int(self._request("polycast/places", {"sequences": dict(sequences)})["offset"])

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
        for each in ranges:
            offset = each.first
            while offset < each.next:
                header, batches = self._rows(offset, each.next, needed, wanted)
                for gap in header.skipped:
                    on_skipped(gap)
                for batch in batches:
                    rows = matching_rows(batch, wanted)
                    if rows.num_rows:
                        yield rows.select(columns)
                offset = header.next

    def close(self) -> None:
        if self._client:
            self._client.close()
        self._client = None

    def _rows(
        self, offset: int, stop: int, columns: list[str], wanted: RowFilter
    ) -> tuple[RowsHeader, list[pa.RecordBatch]]:
        request = {"from": offset, "to": stop, "columns": columns}
        if wanted.patterns is not None:
            request["patterns"] = [str(pattern) for pattern in wanted.patterns]
        with pa.ipc.open_stream(self._request("polycast/rows", request)) as stream:
            header = msgspec.json.decode(stream.schema.metadata[KEY], type=RowsHeader)
            return header, [batch.replace_schema_metadata() for batch in stream]

    def _request(self, route: str, body: dict[str, Any]) -> Any:
        if self._client is None:
            self._client = Client(to_client_session("hermod", self._at, publishing=True))
        response = self._client.request(route, to_body(body))
        if not response.success:
            raise RemoteError(f"{self._at}: {response.value}", "the broker needs a log: polycast serve --data DIR")
        return response.value
