"""Entries on their way from the event loop to the writer thread.

Each group costs the writer the interpreter for a while, which the event loop then waits for. Entries that nothing
waits for therefore gather, for a short time or up to the size of a group, and the writer sleeps meanwhile. `hurry`
ends that: a publisher waits for its acknowledgement, or a subscriber for committed delivery.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from polycast.log.write.entry import Entry

Item = Sequence[Entry] | Callable[[], None] | None
"""Entries that become durable together; a call in the writer thread; None: the end."""


class EntryQueue:
    def __init__(self, seconds: float, group_bytes: int) -> None:
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._group_bytes = group_bytes
        self._items: deque[Item] = deque()
        self._put_bytes = self._taken_bytes = 0
        self._hurried = False
        self._idle = False
        self._wake = threading.Event()

    # -- from the event loop -----------------------------------------------------------------------------

    def put(self, entries: Sequence[Entry]) -> None:
        self._items.append(entries)
        self._put_bytes += sum([entry.size for entry in entries])
        if self._idle or self._is_full():
            self._wake.set()

    def put_now(self, item: Item) -> None:
        self._items.append(item)
        self.hurry()

    def hurry(self) -> None:
        """Everything that was put is written now."""
        if self._items:
            self._hurried = True
            self._wake.set()

    def __bool__(self) -> bool:
        """Whether there is an item."""
        return bool(self._items)

    # -- in the writer thread ----------------------------------------------------------------------------

    def take(self) -> list[Item]:
        """At least one item, and about as many as a group has room for."""
        self._wait_for_items()
        self._gather()
        hurried, self._hurried = self._hurried, False
        items: list[Item] = []
        size = 0
        while self._items and size < self._group_bytes:
            item = self._items.popleft()
            items.append(item)
            size += 0 if item is None or callable(item) else sum([entry.size for entry in item])
        self._taken_bytes += size
        if hurried and self._items:
            self._hurried = True  # never back to False here: `hurry` may have been called meanwhile
        return items

    def _wait_for_items(self) -> None:
        while not self._items:
            self._idle = True  # before the last look: `put` looks at it after its append
            self._wake.clear()
            if not self._items:
                self._wake.wait()
            self._idle = False

    def _gather(self) -> None:
        self._wake.clear()
        if self._seconds and not self._hurried and not self._is_full():
            self._wake.wait(self._seconds)

    def _is_full(self) -> bool:
        return self._put_bytes - self._taken_bytes >= self._group_bytes
