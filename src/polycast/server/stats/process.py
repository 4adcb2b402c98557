"""Measurements of the process: CPU, memory, files, and the delay of the event loop."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

from polycast.declare import Histogram
from polycast.server.stats.counters import Process

LOOP_SECONDS = 0.1
"""Between two measurements of the event loop."""
STARTED = time.time() - time.process_time()
"""About the start of the process: importing this module takes CPU time and little else."""


def measure_process() -> Process:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Process(
        cpu_seconds=round(time.process_time(), 3),
        resident_memory_bytes=_resident_bytes(),
        open_fds=_open_files(),
        max_fds=0 if limit == resource.RLIM_INFINITY else limit,
        start_time_seconds=round(STARTED, 3),
    )


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return 0


def _open_files() -> int:
    """Linux from 6.2 on has the number as the size of the folder; a list of it can be long."""
    try:
        return Path("/proc/self/fd").stat().st_size or len(list(Path("/dev/fd").iterdir()))
    except OSError:
        return 0


async def measure_loop(delays: Histogram) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(LOOP_SECONDS)
        delays.add(max(0.0, time.monotonic() - before - LOOP_SECONDS))
