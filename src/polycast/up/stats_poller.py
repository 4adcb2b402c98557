"""The broker's statistics, polled for the display."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polycast.client import AsyncClient, connect_async, from_body
from polycast.errors import PolycastError

POLL_SECONDS = 1.0
RESPONSE_SECONDS = 5.0


@dataclass
class BrokerStats:
    """As of the last response; None: unknown."""

    connections: int | None = None
    messages_in: float | None = None
    """Per second."""
    messages_out: float | None = None
    log_bytes: int = 0
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    cluster: dict[str, Any] = field(default_factory=dict)
    """As `polycast/cluster` has it; empty: a single broker."""


class StatsPoller:
    """Polls until cancelled; reconnects when the broker restarts."""

    def __init__(self, address: Callable[[], str], log: Path | None, show: Callable[[BrokerStats], None]) -> None:
        """`address`: the current http listener, or empty."""
        self._address = address
        self._log = log
        self._show = show
        self._last: tuple[float, int, int] | None = None

    async def run(self) -> None:
        while True:
            try:
                if address := self._address():
                    async with await connect_async(
                        "ubre", address, timeout=RESPONSE_SECONDS, reconnect=False
                    ) as client:
                        await self._poll(client)
            except (PolycastError, OSError):
                self._last = None
            self._show(BrokerStats(log_bytes=size_of(self._log)))
            await asyncio.sleep(POLL_SECONDS)

    async def _poll(self, client: AsyncClient) -> None:
        while True:
            stats = await _request(client, "polycast/stats")
            pipelines = await _request(client, "polycast/pipelines")
            shown = self._to_stats(stats, pipelines.get("pipelines", []))
            if "nodes" in stats:
                shown.cluster = await _request(client, "polycast/cluster")
            self._show(shown)
            await asyncio.sleep(POLL_SECONDS)

    def _to_stats(self, stats: dict[str, Any], pipelines: list[dict[str, Any]]) -> BrokerStats:
        listeners = stats.get("listeners", [])
        counted = [sum(row.get(name, 0) for row in listeners) for name in ("messages_in", "messages_out")]
        now = (asyncio.get_running_loop().time(), counted[0], counted[1])
        broker_stats = BrokerStats(stats.get("connections"), log_bytes=size_of(self._log), pipelines=pipelines)
        if self._last and now[0] > self._last[0]:
            seconds = now[0] - self._last[0]
            broker_stats.messages_in = (now[1] - self._last[1]) / seconds
            broker_stats.messages_out = (now[2] - self._last[2]) / seconds
        self._last = now
        return broker_stats


async def _request(client: AsyncClient, route: str) -> dict[str, Any]:
    """The body of the response; empty on failure."""
    response = await client.request(route, timeout=RESPONSE_SECONDS)
    value = from_body(response.body) if response.success else None
    return value if isinstance(value, dict) else {}


def size_of(folder: Path | None) -> int:
    """In bytes. Files that disappear meanwhile are skipped."""
    total = 0
    for path in folder.glob("*") if folder else ():
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
