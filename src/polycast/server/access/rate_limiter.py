"""How fast anybody may publish: past the rate a connection is not read for as long as it was too fast.

What waits in its socket pushes back on it. A burst that was read is taken whole, whatever its size: then the wait
is as much longer. A second's worth may come at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from polycast.server.io.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from polycast.server.access.settings import AccessSettings
    from polycast.server.io.connection import Connection

PATIENCE_SECONDS = 0.001
"""Less than that is not worth a wait."""


class Bucket:
    """Fills at its rate, up to what one second brings; below nothing, it says how long to wait."""

    def __init__(self, per_second: float, now: float) -> None:
        self._rate = per_second
        self._level = per_second
        self._filled = now

    def spend(self, amount: int, now: float) -> float:
        """How many seconds to wait for more."""
        self._level = min(self._rate, self._level + (now - self._filled) * self._rate) - amount
        self._filled = now
        return max(0.0, -self._level / self._rate)


class RateLimit:
    """What one connection, or one identity, may bring; a rate of 0 is none."""

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
        """How often somebody had to wait."""

    def charge(self, connection: Connection, messages: int, size: int) -> None:
        """Called for what a connection publishes: it waits if that was too fast."""
        now = time.monotonic()
        own, shared = self._paces(connection, now)
        wait = max(own.spend(messages, size, now), shared.spend(messages, size, now))
        if wait > PATIENCE_SECONDS and connection not in self._waiting:
            self.waits += 1
            self._waiting.add(connection)
            self._budget.hold(connection)
            asyncio.get_running_loop().call_later(wait, self._look_again, connection)

    def _look_again(self, connection: Connection) -> None:
        """More of what had been read before may have been charged meanwhile, and others of its identity."""
        if connection not in self._waiting:
            return
        now = time.monotonic()
        wait = max(pace.spend(0, 0, now) for pace in self._paces(connection, now))
        if wait > PATIENCE_SECONDS:
            asyncio.get_running_loop().call_later(wait, self._look_again, connection)
        else:
            self._waiting.discard(connection)
            self._budget.release(connection)

    def _paces(self, connection: Connection, now: float) -> tuple[RateLimit, RateLimit]:
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
