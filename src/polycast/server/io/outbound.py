"""Outbound connections: dialled, and redialled with back-off when they are lost.

Configured addresses are dialled forever. Announced addresses are abandoned after `ANNOUNCED_ATTEMPTS` failures,
until they are announced again: otherwise an announcement could make the broker dial any address forever.
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
ANNOUNCED_ATTEMPTS = 16
"""Failed attempts in a row, about a minute, after which an announced address is abandoned."""
OWN_AT_MOST = 10_000
"""How many announced addresses of this broker itself are remembered."""


class DialTarget(NamedTuple):
    """An address to dial, and the role of the connection."""

    role: str
    address: Address
    announced: bool = False
    """Whether a mesh announcement named the address, not the configuration."""

    def __str__(self) -> str:
        return f"{self.role} {self.address}"


DIAL_ERRORS = (OSError, RuntimeError, ValueError)
"""A lost transport raises RuntimeError, its socket ValueError, as does an invalid host name."""

Dial = Callable[[DialTarget], Awaitable[Connection]]


class OutboundConnections:
    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the text of the target."""
        self._announced: dict[str, str] = {}
        """The hosts of announced targets, by the text of the target."""
        self._own: OrderedDict[str, None] = OrderedDict()
        """Announced targets that are this broker itself: never dialled again."""
        self._closed: dict[Connection, asyncio.Event] = {}
        self._abandoned: dict[Connection, Connection | None] = {}
        """Connections closed on purpose: in favour of a duplicate, or (None) because they lead to this broker."""

    def __contains__(self, target: DialTarget) -> bool:
        return str(target) in self._tasks or str(target) in self._own

    @property
    def announced(self) -> int:
        """How many announced targets are dialled or connected."""
        return len(self._announced)

    def announced_at(self, host: str) -> int:
        return sum(each == host for each in self._announced.values())

    def add(self, target: DialTarget) -> None:
        if target not in self:
            self._tasks[str(target)] = asyncio.create_task(self._maintain(target))
            if target.announced:
                self._announced[str(target)] = target.address.host

    def closed(self, connection: Connection) -> None:
        """Called for every connection that closes, outbound or not."""
        event = self._closed.pop(connection, None)
        if event is not None:
            event.set()

    def abandon(self, connection: Connection, duplicate: Connection | None) -> None:
        self._abandoned[connection] = duplicate

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _maintain(self, target: DialTarget) -> None:
        attempts = 0
        while True:
            attempts += 1
            connection = await self._attempt(target, attempts)
            if connection is not None:
                connected = time.monotonic()
                await self._wait_for_close(connection)
                if time.monotonic() - connected > LONGEST_WAIT_SECONDS:
                    attempts = 1
                if connection not in self._abandoned:
                    log.warning("%s: connection lost; dialling again", target)
                elif (duplicate := self._abandoned.pop(connection)) is not None:
                    await self._wait_for_close(duplicate)
                    attempts = 1
                else:
                    self._remember_own(target)
                    return
            if target.announced and attempts >= ANNOUNCED_ATTEMPTS:
                log.warning("%s: abandoned after %s attempts, until it is announced again", target, attempts)
                self._drop(target)
                return
            await asyncio.sleep(_backoff_seconds(attempts) * random.uniform(0.8, 1.2))

    def _drop(self, target: DialTarget) -> None:
        del self._tasks[str(target)]
        self._announced.pop(str(target), None)

    def _remember_own(self, target: DialTarget) -> None:
        self._drop(target)
        self._own[str(target)] = None
        if len(self._own) > OWN_AT_MOST:
            self._own.popitem(last=False)

    async def _attempt(self, target: DialTarget, attempt: int) -> Connection | None:
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                connection = await self._dial(target)
        except DIAL_ERRORS as error:
            if attempt == 1:
                log.warning("%s: %s; retrying until it succeeds", target, _reason(error))
            return None
        if not connection.closing:
            log.info("%s: connected", target)
        return connection

    async def _wait_for_close(self, connection: Connection) -> None:
        if not connection.closing:
            await self._closed.setdefault(connection, asyncio.Event()).wait()


def _backoff_seconds(attempts: int) -> float:
    doublings = min(attempts - 1, 16)
    return min(FIRST_WAIT_SECONDS * float(2**doublings), LONGEST_WAIT_SECONDS)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {DIAL_SECONDS:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message} (tls.ca sets the authorities)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return getattr(error, "strerror", None) or str(error)
