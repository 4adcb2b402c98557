"""What a broker reports of itself as a node of a cluster."""

from __future__ import annotations

from typing import Protocol

from polycast.server.stats.counters import NodeTotals


class NodeHealth(Protocol):
    stream: str
    """The name of the stream."""

    def totals(self) -> NodeTotals: ...

    def reasons(self) -> list[str]:
        """Why the node is not ready: it cannot publish."""
        ...

    def warnings(self) -> list[str]: ...
