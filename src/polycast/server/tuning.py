"""The heap of the process: freed memory is used again, instead of going back to the kernel at once.

glibc returns every block above 128 KiB when it is freed, and gets new pages for the next one. A page that the kernel
has to clear and to map costs more than reading, routing and sending the messages in it, and a broker frees and
allocates such blocks with every read.
"""

from __future__ import annotations

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
FREE_BYTES = 64 * 1024 * 1024
"""Free memory that stays with the process."""
BLOCK_BYTES = 4 * 1024 * 1024
"""Larger blocks go back to the kernel when they are freed."""


def keep_freed_memory() -> None:
    """Without effect where the C library is not glibc."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, FREE_BYTES)
        mallopt(MMAP_THRESHOLD, BLOCK_BYTES)
