"""Links: the connections that the broker makes by itself. Dialled, kept up, redialled with back-off.

What is configured is dialled for ever. What was found through an announcement is given up after some attempts that
fail, until it is announced again: anybody who may announce could else have any address dialled for ever.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from polycast.address import Address
from polycast.server.io.connection import Connection

log = logging.getLogger("polycast.links")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
DIAL_SECONDS = 5.0
FOUND_ATTEMPTS = 16
"""Attempts in a row, about a minute of them, after which a place that was announced is given up."""
OWN_AT_MOST = 10_000
"""How many announced places are remembered that led to this broker itself."""


class DialTarget(NamedTuple):
    """Where to connect, and as what."""

    role: str
    address: Address
    found: bool = False
    """Whether it was announced; else it is configured."""

    def __str__(self) -> str:
        return f"{self.role} {self.address}"


DIAL_ERRORS = (OSError, RuntimeError, ValueError)
"""A transport that is lost already raises RuntimeError, its socket ValueError, as does a name of no host."""

Dial = Callable[[DialTarget], Awaitable[Connection]]


class OutboundConnections:
    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the text of their place."""
        self._found: dict[str, str] = {}
        """The hosts of those that were announced, by the same text."""
        self._own: OrderedDict[str, None] = OrderedDict()
        """The texts of places that led to this broker. They are not dialled again."""
        self._ended: dict[Connection, asyncio.Event] = {}
        self._given_up: dict[Connection, Connection | None] = {}
        """Links closed on purpose: because of their twin, or because they led to ourselves."""

    def __contains__(self, place: DialTarget) -> bool:
        return str(place) in self._tasks or str(place) in self._own

    @property
    def found(self) -> int:
        """How many links there are to announced places."""
        return len(self._found)

    def found_at(self, host: str) -> int:
        return sum(each == host for each in self._found.values())

    def add(self, place: DialTarget) -> None:
        if place not in self:
            self._tasks[str(place)] = asyncio.create_task(self._keep(place))
            if place.found:
                self._found[str(place)] = place.address.host

    def ended(self, connection: Connection) -> None:
        """To be told of every connection that ends, whoever waits for it."""
        event = self._ended.pop(connection, None)
        if event is not None:
            event.set()

    def give_up(self, connection: Connection, twin: Connection | None) -> None:
        self._given_up[connection] = twin

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, place: DialTarget) -> None:
        attempts = 0
        while True:
            attempts += 1
            connection = await self._try(place, attempts)
            if connection is not None:
                linked = time.monotonic()
                await self._end_of(connection)
                if time.monotonic() - linked > LONGEST_WAIT_SECONDS:
                    attempts = 1
                if connection not in self._given_up:
                    log.warning("%s: the link is down; dialling again", place)
                elif (twin := self._given_up.pop(connection)) is not None:
                    await self._end_of(twin)
                    attempts = 1
                else:
                    self._note_own(place)
                    return
            if place.found and attempts >= FOUND_ATTEMPTS:
                log.warning("%s: given up after %s attempts, until it is announced again", place, attempts)
                self._drop(place)
                return
            await asyncio.sleep(_wait_after(attempts) * random.uniform(0.8, 1.2))

    def _drop(self, place: DialTarget) -> None:
        del self._tasks[str(place)]
        self._found.pop(str(place), None)

    def _note_own(self, place: DialTarget) -> None:
        self._drop(place)
        self._own[str(place)] = None
        if len(self._own) > OWN_AT_MOST:
            self._own.popitem(last=False)

    async def _try(self, place: DialTarget, attempt: int) -> Connection | None:
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                connection = await self._dial(place)
        except DIAL_ERRORS as error:
            if attempt == 1:
                log.warning("%s: %s; dialling until it is there", place, _reason(error))
            return None
        if not connection.closing:
            log.info("%s: linked", place)
        return connection

    async def _end_of(self, connection: Connection) -> None:
        if not connection.closing:
            await self._ended.setdefault(connection, asyncio.Event()).wait()


def _wait_after(attempts: int) -> float:
    doublings = min(attempts - 1, 16)
    return min(FIRST_WAIT_SECONDS * float(2**doublings), LONGEST_WAIT_SECONDS)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {DIAL_SECONDS:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message} (tls.ca names the authorities)"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return getattr(error, "strerror", None) or str(error)
