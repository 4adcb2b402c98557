"""How far a query has come, batch by batch, as Spark tells it."""

from __future__ import annotations

import json
import queue
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from polycast.pipelines.runtime.checkpoint import read_offset

COUNTED = "counted"
"""The name under which pipelines observe their `rows`."""


class BatchProgress(NamedTuple):
    """After one batch, or after a while without any."""

    pipeline: str
    batch: int
    rows: int
    """Of this batch."""
    rows_per_second: float
    seconds: float
    """That the batch took."""
    offset: int
    """It has everything before this one."""
    lag: int
    """How many offsets the log has from there on."""

    def with_rows(self, rows: int) -> BatchProgress:
        return self._replace(rows=rows, rows_per_second=round(rows / self.seconds, 1) if self.seconds else 0.0)

    def to_json(self) -> str:
        return json.dumps(self._asdict())


class QueryIdle(NamedTuple):
    """There was nothing to do for a while."""


class QueryEnded(NamedTuple):
    """There is nothing after it."""

    failed: bool


def to_progress(pipeline: str, told: Mapping[str, Any]) -> BatchProgress:
    """From what Spark tells. Where there are several sources, the one that is last counts."""
    sources = told.get("sources") or [{}]
    offsets = [read_offset(source.get("endOffset")) for source in sources]
    ends = [read_offset(source.get("latestOffset")) for source in sources]
    seconds = told.get("durationMs", {}).get("triggerExecution", 0) / 1000
    rows = int(_counted(told) or told.get("numInputRows") or 0)
    return BatchProgress(
        pipeline,
        batch=int(told["batchId"]),
        rows=rows,
        rows_per_second=round(rows / seconds, 1) if seconds else 0.0,
        seconds=seconds,
        offset=min(offsets),
        lag=max(0, *(end - offset for end, offset in zip(ends, offsets, strict=True))),
    )


def _counted(told: Mapping[str, Any]) -> int | None:
    """Where a pipeline counts its rows itself, by `observe`: Spark may see less of them than there are."""
    observed = told.get("observedMetrics", {}).get(COUNTED)
    return observed["rows"] if observed else None


class ProgressListener(StreamingQueryListener):
    """Hears of one pipeline's query. Spark calls it from a thread of its own; who wants to know asks `next`."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._told: queue.SimpleQueue[BatchProgress | QueryIdle | QueryEnded] = queue.SimpleQueue()
        self._run = ""

    def next(self, seconds: float) -> BatchProgress | QueryIdle | QueryEnded | None:
        """What comes next; None if nothing comes for so long."""
        try:
            return self._told.get(timeout=seconds)
        except queue.Empty:
            return None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 -- all these are Spark's names
        if event.name == self._pipeline:
            self._run = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if str(event.progress.runId) == self._run:
            self._told.put(to_progress(self._pipeline, json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        if str(event.runId) == self._run:
            self._told.put(QueryIdle())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if str(event.runId) == self._run:
            self._told.put(QueryEnded(event.exception is not None))
