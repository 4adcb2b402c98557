"""The CPU time of the driver and of the target while the clock runs: which of the two is the limit of a cell."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import clock_gettime, process_time
from typing import NamedTuple

CLOCK_OF_PROCESS = getattr(ctypes.CDLL(None), "clock_getcpuclockid", None)
"""POSIX; macOS does not have it. The module `time` has it for threads only."""


class CpuTime(NamedTuple):
    """In seconds, of all threads."""

    driver: float = 0.0
    target: float = 0.0
    """0: unknown."""

    def since(self, before: CpuTime) -> CpuTime:
        return CpuTime(self.driver - before.driver, self.target - before.target)


def measure_cpu_time(processes: Sequence[int]) -> CpuTime:
    """`processes`: the ids of the target's processes."""
    return CpuTime(process_time(), sum(map(_seconds_of, processes)))


def _seconds_of(process: int) -> float:
    """0: the process has ended, or this system cannot tell."""
    clock = ctypes.c_int()
    if CLOCK_OF_PROCESS is None or CLOCK_OF_PROCESS(process, ctypes.byref(clock)):
        return 0.0
    try:
        return clock_gettime(clock.value)
    except OSError:
        return 0.0
