"""The progress of pipelines in the log, as they report it by request.

    polycast/positions   {"query", "offset", "batch"?, "input_rows_per_second"?, "rows_per_second"?, "state"?,
                          "error"?}                           {"lag"}
    polycast/pipelines   {"pipelines": [{"query", "offset", "lag", "batch", "input_rows_per_second",
                                         "rows_per_second", "state", "error", "age_seconds"}, ...]}

The last report of each pipeline is remembered for an hour; the error of a failed one, also after it runs again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

PIPELINES_AT_MOST = 1000
SECONDS = 3600.0
"""A pipeline without a report for this time is forgotten."""
ERROR_CHARACTERS = 4096
"""The length to which an error is cut."""
LARGEST = 2**63 - 1


class Position(Struct, forbid_unknown_fields=True, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=256)]
    offset: Annotated[int, Meta(ge=0, le=LARGEST)]
    """All messages before this offset are processed."""
    rows_per_second: Annotated[float, Meta(ge=0)] | None = None
    """Rate of the last batch."""
    state: Literal["running", "stopped", "failed"] = "running"
    error: str = ""
    batch: Annotated[int, Meta(ge=0, le=LARGEST)] | None = None
    """Number of the last batch."""
    input_rows_per_second: Annotated[float, Meta(ge=0)] | None = None
    """Rate of input since the batch before."""

    def lag(self, log_next: int) -> int:
        return max(0, log_next - self.offset)


class PipelineProgress:
    """Times are arguments, in seconds."""

    def __init__(self) -> None:
        self._reports: OrderedDict[str, tuple[float, Position]] = OrderedDict()
        """By the name of the query, the oldest report first."""

    def put(self, position: Position, now: float) -> None:
        _, before = self._reports.pop(position.query, (now, position))
        error = position.error[:ERROR_CHARACTERS] or before.error
        self._reports[position.query] = now, replace(position, error=error)
        self._forget(now)

    def known(self, now: float) -> list[tuple[float, Position]]:
        """Reports with their times, sorted by name."""
        self._forget(now)
        return [report for _, report in sorted(self._reports.items())]

    def to_rows(self, log_next: int, now: float) -> list[dict[str, Any]]:
        return [
            {
                "query": position.query,
                "offset": position.offset,
                "lag": position.lag(log_next),
                "batch": position.batch,
                "input_rows_per_second": position.input_rows_per_second,
                "rows_per_second": position.rows_per_second,
                "state": position.state,
                "error": position.error,
                "age_seconds": round(now - reported, 3),
            }
            for reported, position in self.known(now)
        ]

    def _forget(self, now: float) -> None:
        while self._reports:
            query, (reported, _) = next(iter(self._reports.items()))
            if len(self._reports) <= PIPELINES_AT_MOST and now - reported < SECONDS:
                return
            del self._reports[query]
