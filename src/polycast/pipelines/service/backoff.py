"""Exponential backoff between restarts."""

from __future__ import annotations

FIRST_SECONDS = 1.0
MAX_SECONDS = 60.0
HEALTHY_SECONDS = 60.0
"""A run of at least this duration resets the backoff."""


class Backoff:
    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def after(self, uptime: float) -> float:
        """Seconds to wait after a run of `uptime` seconds. Doubles each time."""
        if uptime >= HEALTHY_SECONDS:
            self._next = FIRST_SECONDS
        seconds = self._next
        self._next = min(2 * seconds, MAX_SECONDS)
        return seconds
