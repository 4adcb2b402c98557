"""Settings of the interpreter and the C library that a broker needs to be fast.

Memory: glibc returns every block above 128 KiB when it is freed, and gets new pages for the next one. A page that
the kernel has to clear and to map costs more than reading, routing and sending the messages in it, and a broker
frees and allocates such blocks with every read. The memory of a thread comes in pieces of 64 MiB: glibc returns
the last one as soon as it is empty, and gets it again for the next block, unless the room in the piece before is
below M_TOP_PAD. Without it, two thirds of the CPU time of a replay went into page faults.

Threads: a thread of the log that runs Python code keeps the event loop waiting for up to one switch interval.

Garbage collection: a full collection visits the objects of all messages that the log has in memory, hundreds of
thousands of bursts if messages come one at a time, and everything waits for it: 50 ms, several times a second with
the thresholds of Python. Bursts have no cycles, and are freed without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's mallopt."""
FREE_BYTES = 64 * 1024 * 1024
"""Free memory that stays with the process."""
SPARE_BYTES = 16 * 1024 * 1024
"""More addresses, without pages, than asked for, whenever the memory of a thread grows."""
BLOCK_BYTES = 4 * 1024 * 1024
"""Larger blocks go back to the kernel when they are freed."""
SWITCH_SECONDS = 0.0002
GC_THRESHOLDS = 10_000, 5, 100
"""A full collection after 5 million objects more than before."""


def tune_process() -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, FREE_BYTES)
        mallopt(TOP_PAD, SPARE_BYTES)
        mallopt(MMAP_THRESHOLD, BLOCK_BYTES)


def exclude_from_collections() -> None:
    """All objects of now, mostly code, live as long as the process: garbage collections need not visit them."""
    gc.collect()
    gc.freeze()
