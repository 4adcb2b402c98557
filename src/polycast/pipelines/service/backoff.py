"""How long to wait before something that ended is tried again."""

from __future__ import annotations

FIRST_SECONDS = 1.0
MAX_SECONDS = 60.0
HEALTHY_SECONDS = 60.0
"""Who ran for so long is in good health: whatever ended it is news."""


class Backoff:
    """Twice as long each time, unless it had lived for a while."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def after(self, lived: float) -> float:
        """In seconds, for something that ran so long."""
        if lived >= HEALTHY_SECONDS:
            self._next = FIRST_SECONDS
        seconds = self._next
        self._next = min(2 * seconds, MAX_SECONDS)
        return seconds
