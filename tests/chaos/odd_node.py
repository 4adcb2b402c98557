"""A node with a clock that jumps every second, or with a slow disk."""

from __future__ import annotations

import os
import time

from polycast.cli import main
from polycast.log.files.disk import Disk

CLOCK = "CHAOS_CLOCK_SECONDS"
SYNC = "CHAOS_SYNC_SECONDS"


def bend_clock(seconds: float) -> None:
    """Late, right, early, and again."""
    real = time.time

    def bent() -> float:
        return real() + seconds * (int(time.monotonic()) % 3 - 1)

    time.time = bent
    time.time_ns = lambda: int(bent() * 10**9)


def slow_disk(seconds: float) -> None:
    real = Disk.sync

    def sync(self: Disk, fd: int) -> None:
        time.sleep(seconds)
        real(self, fd)

    Disk.sync = sync  # type: ignore[method-assign]


if __name__ == "__main__":
    if CLOCK in os.environ:
        bend_clock(float(os.environ[CLOCK]))
    if SYNC in os.environ:
        slow_disk(float(os.environ[SYNC]))
    main()
