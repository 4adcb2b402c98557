"""A surge: for a while, more is written than housekeeping could seal and summarize.

Housekeeping then waits, since it would take CPU time and the disk from what is published, but no longer than
SURGE_SECONDS after the last write to a segment.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from polycast.log.files.folder import Segment

SURGE_BYTES = 100_000_000
"""More than this per second is a surge."""
SURGE_SECONDS = 30.0
RATE_SECONDS = 0.25
"""The rate is measured over at least this time."""


class Surge:
    def __init__(self, bytes_written: Callable[[], int]) -> None:
        self._bytes_written = bytes_written
        self._bytes, self._at = 0, time.monotonic()
        """As measured last."""
        self._present = False

    def measure(self) -> None:
        written, now = self._bytes_written(), time.monotonic()
        if now - self._at >= RATE_SECONDS:
            self._present = written - self._bytes > SURGE_BYTES * (now - self._at)
            self._bytes, self._at = written, now

    def delays(self, segment: Segment) -> bool:
        """Whether work on this closed segment waits."""
        self.measure()
        try:
            age = time.time() - segment.path.stat().st_mtime
        except OSError:
            return False
        return self._present and abs(age) < SURGE_SECONDS  # the clock may have been set back
