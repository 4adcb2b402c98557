"""The default ports of a broker: tests in several processes use them one at a time."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

DEFAULT_PORTS = (9014, 8880, 8890, 7878, 8787, 5550, 5551, 8080)
LOCK = Path(tempfile.gettempdir()) / "polycast-default-ports.lock"
_depth = 0


@contextmanager
def lock_ports() -> Iterator[None]:
    """May be nested within a process."""
    global _depth
    if _depth:
        yield
        return
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1


def lock_for(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """`polycast doctor` opens every default port for a moment."""
    return lock_ports() if "doctor" in arguments and "--help" not in arguments else nullcontext()
