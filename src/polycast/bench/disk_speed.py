"""What the disk takes, measured beside the targets in every round: the references of the cells about the log.

disk       sequential blocks of 2 MiB, an fdatasync after each. The block then leaves the page cache: the next one
           uses the same memory. Otherwise new memory for the cache, not the disk, can be the limit
fdatasync  small appends at the rate of the cell, an fdatasync after each, into space that was allocated ahead, as
           in a hot segment. The time counts from the write, not from the due time
"""

from __future__ import annotations

import os
from collections.abc import Callable
from tempfile import TemporaryFile
from time import perf_counter, sleep

from polycast.bench.delays import percentiles
from polycast.bench.job import Job, Outcome

DISK, FDATASYNC = "disk", "fdatasync"
BLOCK_BYTES = 2 * 1024 * 1024
APPEND_BYTES = 512


def measure_disk(job: Job) -> Outcome:
    block = os.urandom(BLOCK_BYTES)
    blocks = 0
    with TemporaryFile(dir=job.folder, buffering=0) as file:
        start = now = perf_counter()
        while now < start + job.seconds:
            file.write(block)
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), blocks * BLOCK_BYTES, BLOCK_BYTES, os.POSIX_FADV_DONTNEED)
            blocks += 1
            now = perf_counter()
    return Outcome(blocks, delivered=blocks, elapsed=now - start, log_bytes=blocks * BLOCK_BYTES)


def measure_fdatasync(job: Job) -> Outcome:
    appends, rate = max(1, int(job.seconds * job.cell.rate)), job.cell.rate
    times = []
    with TemporaryFile(dir=job.folder, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, appends * APPEND_BYTES)
        begin = perf_counter()
        for number in range(appends):
            sleep(max(0.0, begin + number / rate - perf_counter()))
            start = perf_counter()
            file.write(bytes(APPEND_BYTES))
            os.fdatasync(file.fileno())
            times.append(perf_counter() - start)
        elapsed = perf_counter() - begin
    return Outcome(appends, delivered=appends, elapsed=elapsed, delays=percentiles(times))


REFERENCES: dict[str, Callable[[Job], Outcome]] = {DISK: measure_disk, FDATASYNC: measure_fdatasync}
"""By the wire of the job: there is none."""
