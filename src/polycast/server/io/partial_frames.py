"""The memory of frames that are not finished, over all connections.

What a connection has sent of a frame waits in memory for the rest. All of that together may take
`limits.total_receive_bytes`, and three quarters of it where a large frame wants more room: small ones go on
beside any number of large ones. A connection for which there is no room is not read until there is some. The one
whose frame began first is always read: so one frame at least gets finished, and its room is free for the next.

A frame must go on: one of which nothing comes for `limits.frame_seconds` costs its connection. While others wait
for room, so does one that is not finished within that time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from polycast.server.io.memory_budget import BudgetMember, MemoryBudget

COUNTED_BYTES = 4096
"""What is smaller is not counted."""
LARGE_SHARE = 0.75


class FrameOwner(BudgetMember, Protocol):
    def unfinished_bytes(self) -> int:
        """How much of what came is kept for a frame that is not finished."""
        ...


@dataclass(slots=True)
class PartialFrame:
    held: int = 0
    wanted: int = 0
    """What it would hold if it could go on."""
    since: float = 0.0
    """When it began, on the clock that only goes forward; time in which it is not read does not count."""
    moved: float = 0.0
    """When something came of it, or it was not read."""
    came: int = 0
    """How much had come of it by then."""


class PartialFrames:
    def __init__(self, limit: int, budget: MemoryBudget) -> None:
        self._limit = limit
        self._limit_to_grow = limit * LARGE_SHARE
        self._budget = budget
        self._frames: OrderedDict[FrameOwner, PartialFrame] = OrderedDict()
        """The oldest first."""
        self._waiting: dict[FrameOwner, None] = {}
        self.total = 0
        self.waits = 0

    @property
    def is_full(self) -> bool:
        return self.total > self._limit

    def note(self, member: FrameOwner, held: int, wanted: int, now: float, begins: bool) -> None:
        """It holds so much, and needs `wanted` to go on; `begins`: its frame is another than before."""
        frame = self._frames.get(member)
        finished = frame is not None and begins
        if finished:
            self._drop(member)
        if frame is None or finished:
            frame = self._frames[member] = PartialFrame(since=now, moved=now)
        self.total += held - frame.held
        frame.held, frame.wanted = held, wanted
        if self._may_go_on(member, frame):
            self._go_on(frame)
        elif member not in self._waiting:
            self._waiting[member] = None
            self.waits += 1
            self._budget.hold(member)
        if finished:
            self._wake()

    def forget(self, member: FrameOwner) -> None:
        """Its frame is finished, or never will be."""
        if member in self._frames:
            self._drop(member)
            self._wake()

    def overdue(self, now: float, seconds: float) -> Iterator[tuple[FrameOwner, str]]:
        """Those whose frame does not go on as it must, and why."""
        for member, frame in list(self._frames.items()):
            if self._budget.has_paused(member):
                frame.since += now - frame.moved
                frame.moved = now
            elif self._waiting and now - frame.since >= seconds:
                yield member, f"a frame was not finished within {seconds:g} s while others wait for its room"
            elif (came := member.unfinished_bytes()) != frame.came:
                frame.moved, frame.came = now, came
            elif now - frame.moved >= seconds:
                yield member, f"nothing came of an unfinished frame for {seconds:g} s"

    def _drop(self, member: FrameOwner) -> None:
        self.total -= self._frames.pop(member).held
        if member in self._waiting:
            del self._waiting[member]
            self._budget.release(member)

    def _may_go_on(self, member: FrameOwner, frame: PartialFrame) -> bool:
        more = frame.wanted - frame.held
        limit = self._limit_to_grow if more else self._limit
        return self.total + more <= limit or member is next(iter(self._frames))

    def _go_on(self, frame: PartialFrame) -> None:
        self.total += frame.wanted - frame.held
        frame.held = frame.wanted

    def _wake(self) -> None:
        for member in list(self._waiting):
            frame = self._frames[member]
            if self._may_go_on(member, frame):
                del self._waiting[member]
                self._go_on(frame)
                self._budget.release(member)
