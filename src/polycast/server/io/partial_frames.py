"""The memory of incomplete frames, over all connections.

The received part of a frame stays in memory until the frame is complete. All parts together may use
`limits.total_receive_bytes`; a large frame may grow only within three quarters of it, so that small frames
complete beside any number of large ones. A connection whose frame may not grow is not read until memory is free.
The oldest frame may always grow: at least one frame completes, and frees its memory for the next.

A frame must make progress: a connection that receives nothing of its frame for `limits.frame_seconds` is closed.
While other connections wait for memory, so is one whose frame is not complete within that time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from polycast.server.io.memory_budget import BudgetMember, MemoryBudget

COUNTED_BYTES = 4096
"""Smaller parts are not counted."""
LARGE_SHARE = 0.75


class FrameOwner(BudgetMember, Protocol):
    def partial_bytes(self) -> int:
        """The bytes received of an incomplete frame."""
        ...


@dataclass(slots=True)
class PartialFrame:
    held: int = 0
    wanted: int = 0
    """The memory that the frame needs to grow."""
    since: float = 0.0
    """When the frame began (monotonic); moves forward while its connection is paused."""
    moved: float = 0.0
    """When bytes were last received, or its connection was last seen paused."""
    received: int = 0
    """The bytes received by then."""


class PartialFrames:
    def __init__(self, limit: int, budget: MemoryBudget) -> None:
        self._limit = limit
        self._limit_to_grow = limit * LARGE_SHARE
        self._budget = budget
        self._frames: OrderedDict[FrameOwner, PartialFrame] = OrderedDict()
        """The oldest frame first."""
        self._waiting: dict[FrameOwner, None] = {}
        self.total = 0
        self.waits = 0

    @property
    def is_full(self) -> bool:
        return self.total > self._limit

    def note(self, member: FrameOwner, held: int, wanted: int, now: float, begins: bool) -> None:
        """The member holds so many bytes and needs `wanted` to grow; `begins`: this is a new frame."""
        frame = self._frames.get(member)
        finished = frame is not None and begins
        if finished:
            self._drop(member)
        if frame is None or finished:
            frame = self._frames[member] = PartialFrame(since=now, moved=now)
        self.total += held - frame.held
        frame.held, frame.wanted = held, wanted
        if self._may_grow(member, frame):
            self._grow(frame)
        elif member not in self._waiting:
            self._waiting[member] = None
            self.waits += 1
            self._budget.hold(member)
        if finished:
            self._wake()

    def forget(self, member: FrameOwner) -> None:
        """The frame is complete, or its connection closes."""
        if member in self._frames:
            self._drop(member)
            self._wake()

    def overdue(self, now: float, seconds: float) -> Iterator[tuple[FrameOwner, str]]:
        """The members whose frame makes no progress, and the reason."""
        for member, frame in list(self._frames.items()):
            if self._budget.has_paused(member):
                frame.since += now - frame.moved
                frame.moved = now
            elif self._waiting and now - frame.since >= seconds:
                yield (
                    member,
                    f"a frame was not complete within {seconds:g} s while other connections wait for memory",
                )
            elif (received := member.partial_bytes()) != frame.received:
                frame.moved, frame.received = now, received
            elif now - frame.moved >= seconds:
                yield member, f"nothing of an incomplete frame was received for {seconds:g} s"

    def _drop(self, member: FrameOwner) -> None:
        self.total -= self._frames.pop(member).held
        if member in self._waiting:
            del self._waiting[member]
            self._budget.release(member)

    def _may_grow(self, member: FrameOwner, frame: PartialFrame) -> bool:
        more = frame.wanted - frame.held
        limit = self._limit_to_grow if more else self._limit
        return self.total + more <= limit or member is next(iter(self._frames))

    def _grow(self, frame: PartialFrame) -> None:
        self.total += frame.wanted - frame.held
        frame.held = frame.wanted

    def _wake(self) -> None:
        for member in list(self._waiting):
            frame = self._frames[member]
            if self._may_grow(member, frame):
                del self._waiting[member]
                self._grow(frame)
                self._budget.release(member)
