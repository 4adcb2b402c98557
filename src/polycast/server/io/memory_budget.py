"""The memory that all send queues together may take.

Past the limit, whoever publishes is not read any further; what waits in its socket pushes back on it. Reading
goes on when the queues have shrunk to three quarters. Only connections whose transport has fallen behind are
counted: what waits for the others is less than a transport's high-water mark each, and gone within the turn.

Rows that are staged take of the same memory, so they leave less of it to the queues; but at least a half, or else
one publisher that stages and never commits could stop all others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

RESUME_SHARE = 0.75
QUEUES_SHARE = 0.5
"""What the queues may have in any case."""
CHECK_SECONDS = 0.01


class BudgetMember(Protocol):
    def queued(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class MemoryBudget:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.backlog: Callable[[float], bool] = lambda share: False
        """Whether something else than the queues is past this share of what it may hold."""
        self.staged: Callable[[], int] = lambda: 0
        """The bytes of all that is staged."""
        self._behind: set[BudgetMember] = set()
        self._paused: set[BudgetMember] = set()
        self._held: Counter[BudgetMember] = Counter()
        """Those that are not read for other reasons, and for how many."""
        self.pauses = 0

    @property
    def behind(self) -> set[BudgetMember]:
        return self._behind

    def has_paused(self, member: BudgetMember) -> bool:
        return member in self._paused or self._held[member] > 0

    def hold(self, member: BudgetMember) -> None:
        """It is not read until it is released, as often as it was held."""
        self._held[member] += 1
        member.pause_reading()

    def release(self, member: BudgetMember) -> None:
        self._held[member] -= 1
        if self._held[member] > 0:
            return
        del self._held[member]
        if member not in self._paused:
            member.resume_reading()

    def total(self) -> int:
        return sum(member.queued() for member in self._behind)

    def fell_behind(self, member: BudgetMember) -> None:
        self._behind.add(member)

    def caught_up(self, member: BudgetMember) -> None:
        self._behind.discard(member)

    def forget(self, member: BudgetMember) -> None:
        self._behind.discard(member)
        self._paused.discard(member)
        del self._held[member]

    def charge(self, publisher: BudgetMember) -> None:
        """Called when a connection has published: it waits if there is no room for more."""
        if publisher in self._paused or not self._is_over(1.0):
            return
        publisher.pause_reading()
        self.pauses += 1
        if not self._paused:
            asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)
        self._paused.add(publisher)

    def _check(self) -> None:
        if self._paused and self._is_over(RESUME_SHARE):
            asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)
            return
        paused, self._paused = self._paused, set()
        for member in paused:
            if not self._held[member]:
                member.resume_reading()

    def _is_over(self, share: float) -> bool:
        return self.backlog(share) or (bool(self._behind) and self.total() > self._room() * share)

    def _room(self) -> float:
        return max(self._limit - self.staged(), self._limit * QUEUES_SHARE)
