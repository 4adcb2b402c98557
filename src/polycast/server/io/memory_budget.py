"""The memory budget of all send queues together (`limits.total_queue_bytes`), enforced by backpressure.

Past the limit, publishers are not read until the queues have shrunk to three quarters of it: TCP slows them down.
Only connections whose transport has fallen behind are counted; the queue of any other is shorter than a
transport's high-water mark, and is sent within the turn.

Staged rows use the same budget. The queues always keep half of it, so that a publisher that stages rows and never
commits them cannot stop all others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

RESUME_SHARE = 0.75
QUEUES_SHARE = 0.5
"""The share of the limit that staged rows cannot use."""
CHECK_SECONDS = 0.01


class BudgetMember(Protocol):
    def queued(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class MemoryBudget:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.backlog: Callable[[float], bool] = lambda share: False
        """Whether the log's backlog exceeds this share of its limit."""
        self.staged: Callable[[], int] = lambda: 0
        """The bytes of all staged rows."""
        self.on_caught_up: Callable[[BudgetMember], None] = lambda member: None
        self._behind: set[BudgetMember] = set()
        self._paused: set[BudgetMember] = set()
        self._held: Counter[BudgetMember] = Counter()
        """Members paused for other reasons than the budget, and the number of those reasons."""
        self.pauses = 0

    @property
    def behind(self) -> set[BudgetMember]:
        return self._behind

    def has_paused(self, member: BudgetMember) -> bool:
        return member in self._paused or self._held[member] > 0

    def hold(self, member: BudgetMember) -> None:
        """Pause reading until `release` was called as often as `hold`."""
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
        self.on_caught_up(member)

    def forget(self, member: BudgetMember) -> None:
        self._behind.discard(member)
        self._paused.discard(member)
        del self._held[member]

    def charge(self, publisher: BudgetMember) -> None:
        """Pause a connection that has published, if the budget is exceeded."""
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
