"""Pauses of replays whose connections have no room.

A pause ends early when the connection has sent what was queued, or closes. So a replay need not look often, and a
thousand that stall take hardly any time.
"""

from __future__ import annotations

import asyncio

from polycast.server.io.memory_budget import BudgetMember


class Pauses:
    def __init__(self) -> None:
        self._waiting: dict[BudgetMember, list[asyncio.Future[None]]] = {}

    async def wait(self, connection: BudgetMember, seconds: float) -> None:
        """At most so many seconds."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(connection, []).append(future)
        timer = loop.call_later(seconds, _end, future)
        try:
            await future
        finally:
            timer.cancel()
            self._forget(connection, future)

    def end(self, connection: BudgetMember) -> None:
        for future in self._waiting.get(connection, ()):
            _end(future)

    def end_all(self) -> None:
        for connection in self._waiting:
            self.end(connection)

    def _forget(self, connection: BudgetMember, future: asyncio.Future[None]) -> None:
        futures = self._waiting[connection]
        futures.remove(future)
        if not futures:
            del self._waiting[connection]


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
