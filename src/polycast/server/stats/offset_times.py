"""When offsets were given out, as roughly as people need it.

One mark for each sweep in which messages came: what lies before its offset, and not before that of the mark
before it, came then. When there are too many, those go that say little: what is old is told less exactly.
"""

from __future__ import annotations

from bisect import bisect_right

MARKS_AT_MOST = 4096
EXACTNESS = 100
"""What came an hour ago is told to an hour through this. A year fits: marks grow with its logarithm."""


class OffsetTimes:
    """Times come in as arguments, in seconds since the epoch."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times: list[float] = []

    def note(self, next_offset: int, now: float) -> None:
        """The first one says where the broker began: of what lies before that, nothing is known."""
        if self._offsets and next_offset == self._offsets[-1]:
            return
        self._offsets.append(next_offset)
        self._times.append(now)
        if len(self._offsets) > MARKS_AT_MOST:
            self._thin(now)

    def _thin(self, now: float) -> None:
        """A mark goes if those around it are near enough to each other."""
        kept, last = [0], len(self._times) - 1
        for place in range(1, last):
            gap = self._times[place + 1] - self._times[kept[-1]]
            if gap > (now - self._times[place]) / EXACTNESS:
                kept.append(place)
        kept.append(last)
        self._offsets = [self._offsets[place] for place in kept]
        self._times = [self._times[place] for place in kept]

    def time_of(self, offset: int, now: float) -> float | None:
        """When it came, and not earlier; None: before the broker began, or never."""
        place = bisect_right(self._offsets, offset)
        if place == 0:
            return None
        return self._times[place] if place < len(self._times) else now
