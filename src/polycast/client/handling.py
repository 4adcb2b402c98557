"""Requests whose handlers are `async`: a task for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from polycast.dialects.client_requests import Deferred
from polycast.dialects.client_session import ClientSession


class AsyncHandling:
    def __init__(self, session: ClientSession, send: Callable[[bytes], None]) -> None:
        """`send` drops the response if the connection has ended."""
        session.defers = True
        self._session = session
        self._send = send
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """For the requests that the session has received."""
        deferred, self._session.deferred = self._session.deferred, []
        for each in deferred:
            task = asyncio.ensure_future(self._respond(each))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def cancel(self) -> None:
        """Returns when all handlers have ended, except one that calls this."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _respond(self, deferred: Deferred) -> None:
        try:
            result = await deferred.result
        except Exception as error:
            result = error
        self._send(self._session.to_late_response(deferred.route, deferred.handle, result))
