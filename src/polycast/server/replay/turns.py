"""The order in which connections read the log: round robin over identities, and over the connections of each.

The reads of one connection wait in a line, and only the first of them is under way: however many a connection
asks for, it has one turn in a round and one unfinished result in memory.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from polycast.dialects.guard import Guard
from polycast.log.read.work import Work


class Owner(Protocol):
    """A connection."""

    guard: Guard


class Read:
    """One piece of reading that a connection waits for."""

    __slots__ = ("ended", "future", "limit", "work")

    def __init__(self, work: Work[Any], future: asyncio.Future[Any], limit: Limit | None = None) -> None:
        self.work = work
        self.future = future
        self.limit = limit
        """None for the replay of a subscription: it is part of a longer reading that has its own end."""
        self.ended: BaseException | None = None
        """Set where the result is not wanted any more. The work ends before its next piece."""


class Limit(NamedTuple):
    seconds: float
    until: float = math.inf


class Line:
    """The reads of one connection, the one that is under way first."""

    __slots__ = ("identity", "owner", "reads", "running")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.identity = owner.guard.identity
        self.reads: deque[Read] = deque()
        self.running = False
        """Whether a thread has the first one now."""

    @property
    def requests(self) -> int:
        return sum(read.limit is not None for read in self.reads)


class Lines:
    def __init__(self) -> None:
        self._lines: dict[Owner, Line] = {}
        self._ready: OrderedDict[str, OrderedDict[Owner, Line]] = OrderedDict()
        """By identity; those whose turn comes first are first."""

    def __iter__(self) -> Iterator[Line]:
        return iter(list(self._lines.values()))

    def of(self, owner: Owner) -> Line | None:
        return self._lines.get(owner)

    def put(self, owner: Owner, read: Read) -> None:
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = Line(owner)
        line.reads.append(read)
        self.settle(line)

    def take(self) -> Line | None:
        """The line whose turn it is. It has no other turn before `settle`."""
        if not self._ready:
            return None
        identity, ring = next(iter(self._ready.items()))
        _, line = ring.popitem(last=False)
        self._ready.move_to_end(identity)
        if not ring:
            del self._ready[identity]
        line.running = True
        return line

    def settle(self, line: Line) -> None:
        """After a change of its reads: it waits for its turn, at the end of the round, or it is gone."""
        if line.running:
            return
        if line.reads:
            self._ready.setdefault(line.identity, OrderedDict()).setdefault(line.owner, line)
            return
        self._lines.pop(line.owner, None)
        ring = self._ready.get(line.identity, OrderedDict())
        ring.pop(line.owner, None)
        if not ring:
            self._ready.pop(line.identity, None)
