"""Progress of a streaming query, per batch, from Spark's listener events."""

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
"""The observed metric with which a pipeline counts its `rows`, if Spark sees fewer rows than the pipeline."""


class BatchProgress(NamedTuple):
    pipeline: str
    batch: int
    rows: int
    """Rows of this batch."""
    rows_per_second: float
    seconds: float
    """Duration of the batch."""
    offset: int
    """The next offset to process."""
    lag: int
    """Offsets from there to the end of the log."""

    def with_rows(self, rows: int) -> BatchProgress:
        return self._replace(rows=rows, rows_per_second=round(rows / self.seconds, 1) if self.seconds else 0.0)

    def to_json(self) -> str:
        return json.dumps(self._asdict())


class QueryIdle(NamedTuple):
    """No new messages for some time."""


class QueryEnded(NamedTuple):
    """The last event of a query."""

    failed: bool


def to_progress(pipeline: str, event: Mapping[str, Any]) -> BatchProgress:
    """With several sources, the slowest one counts."""
    sources = event.get("sources") or [{}]
    offsets = [read_offset(source.get("endOffset")) for source in sources]
    ends = [read_offset(source.get("latestOffset")) for source in sources]
    seconds = event.get("durationMs", {}).get("triggerExecution", 0) / 1000
    counted = (event.get("observedMetrics", {}).get(COUNTED) or {}).get("rows")
    lag = max(0, *(end - offset for end, offset in zip(ends, offsets, strict=True)))
    progress = BatchProgress(pipeline, int(event["batchId"]), 0, 0.0, seconds, min(offsets), lag)
    return progress.with_rows(int(counted or event.get("numInputRows") or 0))


class ProgressListener(StreamingQueryListener):
    """Queues the events of one pipeline's query. Spark calls it from its own thread; `next` returns the events."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._events: queue.SimpleQueue[BatchProgress | QueryIdle | QueryEnded] = queue.SimpleQueue()
        self._run = ""

    def next(self, seconds: float) -> BatchProgress | QueryIdle | QueryEnded | None:
        """The next event; None after a timeout."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 -- names of Spark's interface
        if event.name == self._pipeline:
            self._run = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if str(event.progress.runId) == self._run:
            self._events.put(to_progress(self._pipeline, json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        if str(event.runId) == self._run:
            self._events.put(QueryIdle())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if str(event.runId) == self._run:
            self._events.put(QueryEnded(event.exception is not None))
