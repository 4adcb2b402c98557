"""Links to other brokers: dialled, kept up, redialled with back-off."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from polycast.server.connection import Connection

log = logging.getLogger("polycast.links")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
SPARE_WAIT_SECONDS = 30.0
"""How long until a link that another one to the same broker made unnecessary is tried again."""

Dial = Callable[[str, int], Awaitable[Connection]]


class Links:
    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._ended: dict[Connection, asyncio.Event] = {}
        self._verdicts: dict[Connection, bool] = {}
        """Links that were closed on purpose, and whether to try again later."""

    def __contains__(self, place: tuple[str, int]) -> bool:
        return place in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, host: str, port: int) -> None:
        if (host, port) not in self._tasks:
            self._tasks[host, port] = asyncio.create_task(self._keep(host, port))

    def ended(self, connection: Connection) -> None:
        """To be told of every connection that ends; those that were not dialled are none of ours."""
        event = self._ended.get(connection)
        if event is not None:
            event.set()

    def give_up(self, connection: Connection, for_now: bool) -> None:
        self._verdicts[connection] = for_now

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _keep(self, host: str, port: int) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                connection = await self._dial(host, port)
            except OSError as error:
                if wait == FIRST_WAIT_SECONDS:
                    log.warning("peer %s:%s: %s; trying again until it is there", host, port, error.strerror)
            else:
                wait = FIRST_WAIT_SECONDS
                again_later = await self._until_ended(connection)
                if again_later is False:
                    return
                if again_later:
                    wait = SPARE_WAIT_SECONDS
                else:
                    log.warning("peer %s:%s: the link is down; dialling again", host, port)
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    async def _until_ended(self, connection: Connection) -> bool | None:
        self._ended[connection] = event = asyncio.Event()
        if connection.closing:
            event.set()
        await event.wait()
        del self._ended[connection]
        return self._verdicts.pop(connection, None)
