"""The order in which connections read the log: round robin over identities, and over the connections of each.

The reads of one connection are queued, and only the first is in progress: however many reads a connection
requests, it has one turn in a round and one unfinished result in memory.

Reads of rows are queued separately, as if from another identity: a replay that has a share of the memory of all
replays must not wait for the requests of its own connection, or of a thousand others of its identity.
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


class ReadTask:
    """A read that a connection waits for."""

    __slots__ = ("ended", "future", "limit", "work")

    def __init__(self, work: Work[Any], future: asyncio.Future[Any], limit: Limit | None = None) -> None:
        self.work = work
        self.future = future
        self.limit = limit
        """None for the replay of a subscription, which has no time limit."""
        self.ended: BaseException | None = None
        """Set when the read is cancelled or failed. The work ends before its next step."""


class Limit(NamedTuple):
    seconds: float
    until: float = math.inf


class ConnectionReads:
    """The queued reads of one connection, those of rows or all others; the first is in progress."""

    __slots__ = ("identity", "key", "owner", "reads", "running")

    def __init__(self, owner: Owner, rows: bool) -> None:
        self.owner = owner
        self.key = owner, rows
        self.identity = owner.guard.identity, rows
        self.reads: deque[ReadTask] = deque()
        self.running = False
        """Whether a thread works on the first read now."""

    @property
    def requests(self) -> int:
        return sum(read.limit is not None for read in self.reads)


class ReadQueue:
    def __init__(self) -> None:
        self._lines: dict[tuple[Owner, bool], ConnectionReads] = {}
        self._ready: OrderedDict[tuple[str, bool], OrderedDict[Owner, ConnectionReads]] = OrderedDict()
        """By identity, in the order of their turns."""

    def __iter__(self) -> Iterator[ConnectionReads]:
        return iter(list(self._lines.values()))

    def of(self, owner: Owner) -> list[ConnectionReads]:
        return [line for rows in (False, True) if (line := self._lines.get((owner, rows)))]

    def put(self, owner: Owner, read: ReadTask, rows: bool) -> None:
        line = self._lines.get((owner, rows))
        if line is None:
            line = self._lines[owner, rows] = ConnectionReads(owner, rows)
        line.reads.append(read)
        self.requeue(line)

    def take(self) -> ConnectionReads | None:
        """The connection whose turn it is. It gets no other turn before `requeue`."""
        if not self._ready:
            return None
        identity, ring = next(iter(self._ready.items()))
        _, line = ring.popitem(last=False)
        self._ready.move_to_end(identity)
        if not ring:
            del self._ready[identity]
        line.running = True
        return line

    def requeue(self, line: ConnectionReads) -> None:
        """To be called after its reads changed: puts the connection at the end of the round, or removes it."""
        if line.running:
            return
        if line.reads:
            self._ready.setdefault(line.identity, OrderedDict()).setdefault(line.owner, line)
            return
        self._lines.pop(line.key, None)
        ring = self._ready.get(line.identity, OrderedDict())
        ring.pop(line.owner, None)
        if not ring:
            self._ready.pop(line.identity, None)
