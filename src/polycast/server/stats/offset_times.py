"""The approximate time of each offset.

Each sweep that finds new messages adds a sample: the messages since the previous sample's offset were published at
its time. Past a limit, samples that are close together are dropped: old times are less exact.
"""

from __future__ import annotations

from bisect import bisect_right

SAMPLES_AT_MOST = 4096
EXACTNESS = 100
"""The time of a message one hour old is exact to an hour divided by this."""


class OffsetTimes:
    """Times come in as arguments, in seconds since the epoch."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times: list[float] = []

    def note(self, next_offset: int, now: float) -> None:
        """The first sample is the start of the broker: earlier times are unknown."""
        if self._offsets and next_offset == self._offsets[-1]:
            return
        self._offsets.append(next_offset)
        self._times.append(now)
        if len(self._offsets) > SAMPLES_AT_MOST:
            self._thin(now)

    def _thin(self, now: float) -> None:
        """Drops samples that are close together."""
        remaining, last = [0], len(self._times) - 1
        for index in range(1, last):
            gap = self._times[index + 1] - self._times[remaining[-1]]
            if gap > (now - self._times[index]) / EXACTNESS:
                remaining.append(index)
        remaining.append(last)
        self._offsets = [self._offsets[index] for index in remaining]
        self._times = [self._times[index] for index in remaining]

    def time_of(self, offset: int, now: float) -> float | None:
        """Not earlier than the message; None: published before the broker started, or never."""
        index = bisect_right(self._offsets, offset)
        if index == 0:
            return None
        return self._times[index] if index < len(self._times) else now
