"""Recently forwarded messages, identified by forwarded name and hash: messages have no id."""

from __future__ import annotations

from collections import OrderedDict

LATE_SECONDS = 1.0
"""How long after a forwarded copy the direct message may still arrive over a slower link."""

Key = tuple[bytes, bytes]
"""Forwarded name, sha1 of the data."""


class ForwardedCache:
    """Bounded in number and in time.

    `add` takes constant time. A plain dict would not: to find its first key it skips all slots emptied at its
    front.
    """

    def __init__(self, seconds: float, messages: int) -> None:
        self._seconds = seconds
        self._messages = messages
        self._seen: OrderedDict[Key, tuple[float, bool]] = OrderedDict()
        """When the message was seen, and whether a direct copy may still arrive."""
        self.forgotten = 0
        """Messages evicted early, because there were too many."""

    def __len__(self) -> int:
        return len(self._seen)

    def seen(self, key: Key, now: float) -> bool:
        entry = self._seen.get(key)
        return entry is not None and now - entry[0] < self._seconds

    def add(self, key: Key, now: float, awaits_direct: bool) -> None:
        self._seen.pop(key, None)
        self._seen[key] = (now, awaits_direct)
        while now - next(iter(self._seen.values()))[0] >= self._seconds:
            self._seen.popitem(last=False)
        while len(self._seen) > self._messages:
            self._seen.popitem(last=False)
            self.forgotten += 1

    def take_direct(self, key: Key, now: float) -> bool:
        """Whether this direct message was already delivered as a forwarded copy; true once per copy."""
        entry = self._seen.get(key)
        if entry is None or not entry[1]:
            return False
        self._seen[key] = (entry[0], False)
        return now - entry[0] < LATE_SECONDS
