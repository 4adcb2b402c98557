"""What the broker says about itself, asked every so often: for the display alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polycast.client import AsyncClient, connect_async, from_body
from polycast.errors import PolycastError

ASK_SECONDS = 1.0
ANSWER_SECONDS = 5.0


@dataclass
class Figures:
    """All of it as of the last answer; `None` where there is none."""

    connections: int | None = None
    messages_in: float | None = None
    """Per second."""
    messages_out: float | None = None
    log_bytes: int = 0
    pipelines: list[dict[str, Any]] = field(default_factory=list)


class Asking:
    """Keeps figures up to date until it is cancelled, through whatever happens to the broker."""

    def __init__(self, address: Callable[[], str], log: Path | None, show: Callable[[Figures], None]) -> None:
        """`address` is that of the http listener now, empty as long as there is none."""
        self._address = address
        self._log = log
        self._show = show
        self._last: tuple[float, int, int] | None = None

    async def run(self) -> None:
        while True:
            try:
                if address := self._address():
                    async with await connect_async("ubre", address, timeout=ANSWER_SECONDS) as client:
                        await self._follow(client)
            except (PolycastError, OSError):
                self._last = None
            self._show(Figures(log_bytes=size_of(self._log)))
            await asyncio.sleep(ASK_SECONDS)

    async def _follow(self, client: AsyncClient) -> None:
        while True:
            stats = await _ask(client, "polycast/stats")
            told = await _ask(client, "polycast/pipelines")
            self._show(self._to_figures(stats, told.get("pipelines", [])))
            await asyncio.sleep(ASK_SECONDS)

    def _to_figures(self, stats: dict[str, Any], pipelines: list[dict[str, Any]]) -> Figures:
        listeners = stats.get("listeners", [])
        counted = [sum(row.get(name, 0) for row in listeners) for name in ("messages_in", "messages_out")]
        now = (asyncio.get_running_loop().time(), counted[0], counted[1])
        figures = Figures(stats.get("connections"), log_bytes=size_of(self._log), pipelines=pipelines)
        if self._last and now[0] > self._last[0]:
            seconds = now[0] - self._last[0]
            figures.messages_in = (now[1] - self._last[1]) / seconds
            figures.messages_out = (now[2] - self._last[2]) / seconds
        self._last = now
        return figures


async def _ask(client: AsyncClient, route: str) -> dict[str, Any]:
    """Nothing where the broker does not say."""
    answer = await client.request(route, timeout=ANSWER_SECONDS)
    value = from_body(answer.body) if answer.success else None
    return value if isinstance(value, dict) else {}


def size_of(folder: Path | None) -> int:
    """In bytes. Files come and go meanwhile."""
    total = 0
    for path in folder.glob("*") if folder else ():
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
