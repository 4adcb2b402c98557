"""How far pipelines have come in the log, as they tell by request.

    polycast/positions   {"query", "offset", "batch"?, "input_rows_per_second"?, "rows_per_second"?, "state"?,
                          "error"?}                           {"lag"}
    polycast/pipelines   {"pipelines": [{"query", "offset", "lag", "batch", "input_rows_per_second",
                                         "rows_per_second", "state", "error", "age_seconds"}, ...]}

What each of them said last is remembered for an hour. What one failed with is remembered when it runs again, too.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

PIPELINES_AT_MOST = 1000
SECONDS = 3600.0
"""Who says nothing for so long is forgotten."""
ERROR_CHARACTERS = 4096
"""How much of an error is remembered."""
LARGEST = 2**63 - 1


class Position(Struct, forbid_unknown_fields=True, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=256)]
    offset: Annotated[int, Meta(ge=0, le=LARGEST)]
    """Everything before it is done."""
    rows_per_second: Annotated[float, Meta(ge=0)] | None = None
    """How fast its last batch was."""
    state: Literal["running", "stopped", "failed"] = "running"
    error: str = ""
    batch: Annotated[int, Meta(ge=0, le=LARGEST)] | None = None
    """The number of its last one."""
    input_rows_per_second: Annotated[float, Meta(ge=0)] | None = None
    """How fast rows came in since the batch before."""

    def lag(self, log_next: int) -> int:
        return max(0, log_next - self.offset)


class PipelineProgress:
    """The time comes in as an argument, in seconds."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, tuple[float, Position]] = OrderedDict()
        """By the name of the query, the oldest news first."""

    def put(self, position: Position, now: float) -> None:
        _, before = self._told.pop(position.query, (now, position))
        error = position.error[:ERROR_CHARACTERS] or before.error
        self._told[position.query] = now, replace(position, error=error)
        self._forget(now)

    def known(self, now: float) -> list[tuple[float, Position]]:
        """Each with when that was told, by name."""
        self._forget(now)
        return [told for _, told in sorted(self._told.items())]

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
                "age_seconds": round(now - told, 3),
            }
            for told, position in self.known(now)
        ]

    def _forget(self, now: float) -> None:
        while self._told:
            query, (told, _) = next(iter(self._told.items()))
            if len(self._told) <= PIPELINES_AT_MOST and now - told < SECONDS:
                return
            del self._told[query]
