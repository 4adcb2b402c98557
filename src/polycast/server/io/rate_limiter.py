"""Publish rate limits by connection and by identity, enforced by backpressure.

Past a rate, a connection is not read. A burst that was read is accepted whole; the larger it is, the longer the
pause. One second's worth may arrive at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from polycast.server.io.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from polycast.server.access.settings import AccessSettings
    from polycast.server.io.connection import Connection

SHORTEST_PAUSE_SECONDS = 0.001
"""Shorter pauses are skipped."""


class Bucket:
    """A token bucket that holds one second's worth. A negative level is a debt to wait for."""

    def __init__(self, per_second: float, now: float) -> None:
        self._rate = per_second
        self._level = per_second
        self._filled = now

    def spend(self, amount: int, now: float) -> float:
        """The seconds until the level is no longer negative."""
        self._level = min(self._rate, self._level + (now - self._filled) * self._rate) - amount
        self._filled = now
        return max(0.0, -self._level / self._rate)


class RateLimit:
    """The limits of one connection or identity; a rate of 0 is unlimited."""

    def __init__(self, messages: float, size: float, now: float) -> None:
        self._messages = Bucket(messages, now) if messages else None
        self._bytes = Bucket(size, now) if size else None

    def spend(self, messages: int, size: int, now: float) -> float:
        slow = self._messages.spend(messages, now) if self._messages else 0.0
        return max(slow, self._bytes.spend(size, now) if self._bytes else 0.0)


class RateLimiter:
    def __init__(self, settings: AccessSettings, budget: MemoryBudget, waits: int = 0) -> None:
        self._settings = settings
        self._budget = budget
        self._connections: dict[Connection, RateLimit] = {}
        self._identities: dict[str, RateLimit] = {}
        self._waiting: set[Connection] = set()
        self.waits = waits
        """How often a connection was paused."""

    def charge(self, connection: Connection, messages: int, size: int) -> None:
        """Charge a connection for messages that it published, and pause it if it exceeds a rate."""
        now = time.monotonic()
        own, shared = self._limits_of(connection, now)
        wait = max(own.spend(messages, size, now), shared.spend(messages, size, now))
        if wait > SHORTEST_PAUSE_SECONDS and connection not in self._waiting:
            self.waits += 1
            self._waiting.add(connection)
            self._budget.hold(connection)
            asyncio.get_running_loop().call_later(wait, self._end_pause, connection)

    def _end_pause(self, connection: Connection) -> None:
        """Other connections of the identity may have published meanwhile, so the pause may have to be extended."""
        if connection not in self._waiting:
            return
        now = time.monotonic()
        wait = max(limit.spend(0, 0, now) for limit in self._limits_of(connection, now))
        if wait > SHORTEST_PAUSE_SECONDS:
            asyncio.get_running_loop().call_later(wait, self._end_pause, connection)
        else:
            self._waiting.discard(connection)
            self._budget.release(connection)

    def _limits_of(self, connection: Connection, now: float) -> tuple[RateLimit, RateLimit]:
        settings, identity = self._settings, connection.guard.identity
        own, shared = self._connections.get(connection), self._identities.get(identity)
        if own is None:
            own = RateLimit(settings.connection_messages, settings.connection_bytes, now)
            self._connections[connection] = own
        if shared is None:
            shared = RateLimit(settings.identity_messages, settings.identity_bytes, now)
            self._identities[identity] = shared
        return own, shared

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._waiting.discard(connection)
