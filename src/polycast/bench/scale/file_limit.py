"""The limit of open files: it bounds the connections of the broker, and of each process of the driver."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from contextlib import suppress

SPARE_FILES = 128
"""Open files of the broker besides the idle connections: its own, and those of a measurement."""


def raise_file_limit(wanted: int) -> int:
    """Raises the limit of this process and of the processes that it starts, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # more than the hard limit needs the right to raise it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < min(wanted, hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else soft


def clip(sizes: Sequence[int], files: int) -> list[int]:
    """The sizes that fit; the first one that does not becomes the largest possible."""
    most = files - SPARE_FILES
    fitting = [size for size in sizes if size <= most]
    return fitting if len(fitting) == len(sizes) or most in fitting or most < 1 else [*fitting, most]


def clip_note(sizes: Sequence[int], files: int) -> str:
    """Why `clip` changed the sizes; empty: it did not."""
    if clip(sizes, files) == list(sizes):
        return ""
    missing = ", ".join(f"{size:,}" for size in sizes if size > files - SPARE_FILES)
    return f"not measured: {missing}; a process may open {files:,} files here (RLIMIT_NOFILE)"
