"""The memory budget of the rows that all replays together have read from the log and not yet queued.

A row group is decoded as a whole, and takes 16 MiB and more, however little of it the subscriber takes at once. A
replay has a share of the budget while it has rows, and gives it back where it waits long for its connection: the
rows are read again later. Past the budget replays wait for a share: round robin over identities, and over the
replays of each. While any of them waits, the others wait less for their connections, read nothing ahead, and give
their shares back after `TURN_SECONDS`. So each replay has its turn, also among a thousand that stall.

    acquire ─▶ FIRST_BYTES ─ resize ─▶ what the rows take ─ release ─▶ nothing

To give rows back costs the time to read them again. Turns and waits are therefore longer where reading is slow, as
in a group of 2 GiB.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

import pyarrow as pa

from polycast.server.io.connection import Connection

MIB = 1024 * 1024
LIMIT_BYTES = 128 * MIB
FIRST_BYTES = 16 * MIB
"""What a replay holds before its first read: as much as most row groups have."""
TURN_SECONDS = 0.25
IDLE_SECONDS = 1.0
"""After this time without rows their memory goes back to the system."""
READS_A_TURN = 4
"""A turn lasts at least as long as so many reads."""
SHORTER_PATIENCE = 0.1
"""The part of its usual patience that a replay has with its connection while others wait: at least the time of a
read."""


class Holder(Protocol):
    """A replay."""

    connection: Connection


class RowsShare(NamedTuple):
    size: int
    since: float
    """When the turn began: after the first read."""
    read_seconds: float | None = None
    """The time that the first read took."""


class RowsBudget:
    def __init__(self, limit: int = LIMIT_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._shares: dict[Holder, RowsShare] = {}
        self.held = 0
        self._waiting: OrderedDict[str, OrderedDict[Holder, asyncio.Future[None]]] = OrderedDict()
        """By identity, in the order of their turns."""
        self._identities: dict[Holder, str] = {}
        """Of those that wait, as of when they began to: a token may change it."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while no replay has rows."""
        self.return_memory: Callable[[], None] = pa.default_memory_pool().release_unused
        """Arrow keeps the memory that its threads allocated and the event loop freed."""

    @property
    def is_contended(self) -> bool:
        """Whether a replay waits for its share."""
        return bool(self._waiting)

    async def acquire(self, holder: Holder) -> None:
        """Waits for a share, unless the replay has one. Cancelled by `leave`."""
        if holder in self._shares:
            return
        if not self.is_contended and self._has_room(FIRST_BYTES):
            self._give(holder)
            return
        future = asyncio.get_running_loop().create_future()
        identity = self._identities[holder] = holder.connection.guard.identity
        self._waiting.setdefault(identity, OrderedDict())[holder] = future
        await future

    def resize(self, holder: Holder, size: int) -> None:
        """The rows that were read take so many bytes."""
        share, now = self._shares[holder], self._clock()
        if share.read_seconds is None:
            share = RowsShare(size, now, now - share.since)
        self.held += size - self._shares[holder].size
        self._shares[holder] = share._replace(size=size)
        self._serve()

    def has_room_for(self, holder: Holder, size: int) -> bool:
        """Whether this replay may have so many bytes."""
        return not self.is_contended and self._has_room(size - self._shares[holder].size)

    def is_turn_over(self, holder: Holder) -> bool:
        share = self._shares.get(holder)
        if share is None or not self.is_contended:
            return False
        turn = max(TURN_SECONDS, READS_A_TURN * (share.read_seconds or 0))
        return self._clock() - share.since >= turn

    def to_patience(self, holder: Holder, usual: float) -> float:
        """How long the replay may wait for its connection before it gives its share back."""
        share = self._shares.get(holder)
        if share is None or not self.is_contended:
            return usual
        return min(usual, max(SHORTER_PATIENCE * usual, share.read_seconds or 0))

    def release(self, holder: Holder) -> None:
        """The replay has no rows any more."""
        if share := self._shares.pop(holder, None):
            self.held -= share.size
            self._serve()
            self._watch()

    def leave(self, holder: Holder) -> None:
        """The replay is over: it waits no longer."""
        if holder in self._identities:
            self._take(self._identities[holder], holder).cancel()

    def stop(self) -> None:
        for holder in list(self._identities):
            self.leave(holder)

    # -- the order -----------------------------------------------------------------------------------------

    def _has_room(self, more: int) -> bool:
        """One replay reads however large its row groups are."""
        return not self.held or self.held + more <= self._limit

    def _give(self, holder: Holder) -> None:
        self._shares[holder] = RowsShare(FIRST_BYTES, self._clock())
        self.held += FIRST_BYTES
        self._watch()

    def _watch(self) -> None:
        if self._shares and self._timer:
            self._timer.cancel()
            self._timer = None
        elif not self._shares and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.return_memory)

    def _serve(self) -> None:
        while self._waiting and self._has_room(FIRST_BYTES):
            identity, line = next(iter(self._waiting.items()))
            holder = next(iter(line))
            self._waiting.move_to_end(identity)
            future = self._take(identity, holder)
            if not future.done():
                self._give(holder)
                future.set_result(None)

    def _take(self, identity: str, holder: Holder) -> asyncio.Future[None]:
        line = self._waiting[identity]
        if len(line) == 1:
            del self._waiting[identity]
        del self._identities[holder]
        return line.pop(holder)
