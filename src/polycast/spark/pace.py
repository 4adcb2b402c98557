"""The pace of polls: Spark polls the end of an idle stream about 90 times a second."""

from __future__ import annotations

import time
from collections.abc import Callable

SHORTEST_SECONDS, LONGEST_SECONDS = 0.03, 0.2
IDLE_SHARE = 20
"""The pause before a poll, as a share of the idle time: after an idle second, a twentieth of a second."""


class Pace:
    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._polled = self._active = clock()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last `note_messages`."""
        return self._clock() - self._active

    def note_messages(self) -> None:
        self._active = self._clock()

    def wait(self) -> None:
        """Returns at once if the last poll was long ago."""
        pause = min(max(self.idle_seconds / IDLE_SHARE, SHORTEST_SECONDS), LONGEST_SECONDS)
        self._sleep(max(0.0, self._polled + pause - self._clock()))
        self._polled = self._clock()
