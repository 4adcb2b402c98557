"""Links: the connections that the broker makes by itself. Dialled, kept up, redialled with back-off."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from polycast.address import Address
from polycast.server.connection import Connection

log = logging.getLogger("polycast.links")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
DIAL_SECONDS = 5.0


class Place(NamedTuple):
    """Where to connect, and as what."""

    role: str
    address: Address

    def __str__(self) -> str:
        return f"{self.role} {self.address}"


DIAL_ERRORS = (OSError, RuntimeError, ValueError)
"""A transport that is lost already raises RuntimeError, its socket ValueError, as does a name of no host."""

Dial = Callable[[Place], Awaitable[Connection]]


class Links:
    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the text of their place."""
        self._ended: dict[Connection, asyncio.Event] = {}
        self._given_up: dict[Connection, Connection | None] = {}
        """Links closed on purpose: because of their twin, or because they led to ourselves."""

    def __contains__(self, place: Place) -> bool:
        return str(place) in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, place: Place) -> None:
        if place not in self:
            self._tasks[str(place)] = asyncio.create_task(self._keep(place))

    def ended(self, connection: Connection) -> None:
        """To be told of every connection that ends, whoever waits for it."""
        event = self._ended.pop(connection, None)
        if event is not None:
            event.set()

    def give_up(self, connection: Connection, twin: Connection | None) -> None:
        self._given_up[connection] = twin

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _keep(self, place: Place) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    connection = await self._dial(place)
            except DIAL_ERRORS as error:
                if wait == FIRST_WAIT_SECONDS:
                    log.warning("%s: %s; dialling until it is there", place, _reason(error))
            else:
                log.info("%s: linked", place)
                linked = time.monotonic()
                await self._end_of(connection)
                if time.monotonic() - linked > LONGEST_WAIT_SECONDS:
                    wait = FIRST_WAIT_SECONDS
                if connection not in self._given_up:
                    log.warning("%s: the link is down; dialling again", place)
                elif (twin := self._given_up.pop(connection)) is not None:
                    await self._end_of(twin)
                else:
                    return
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    async def _end_of(self, connection: Connection) -> None:
        if not connection.closing:
            await self._ended.setdefault(connection, asyncio.Event()).wait()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {DIAL_SECONDS:g} s"
    return getattr(error, "strerror", None) or str(error)
