"""stdin, stdout and stderr, also if they are closed or full.

A failure to write stdout or to read stdin is an error with exit code 1. A failure to write stderr is ignored.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from polycast.errors import StartError

if TYPE_CHECKING:
    from rich.console import Console

READ_BYTES = 256 * 1024
STREAM_ERRORS = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EAGAIN)
"""Errors of a standard stream. EPIPE is not among them: a reader may stop."""
REPLACEMENTS = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
"""Flags that make reads of stdin and writes to stdout fail; stderr is discarded."""


def reopen_closed() -> None:
    """Occupies the descriptors of closed streams, so that no socket gets them."""
    for name, flags in REPLACEMENTS.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def notice(text: str) -> None:
    """Prints a line to stderr."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Discards buffered output, so that the interpreter does not fail at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def to_stdout_error(error: OSError) -> StartError | None:
    """None: the error is not about stdout."""
    if error.errno not in STREAM_ERRORS or error.filename is not None:
        return None
    discard(sys.stdout)
    return StartError(f"cannot write to stdout: {_reason(error)}")


def read_stdin() -> Iterator[bytes]:
    """Yields blocks as they arrive."""
    try:
        while data := os.read(sys.stdin.fileno(), READ_BYTES):
            yield data
    except OSError as error:
        raise StartError(f"cannot read stdin: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)


def to_console(stream: TextIO) -> Console:
    """NO_COLOR disables bold, too."""
    from rich.console import Console

    return Console(file=stream, color_system=None if os.environ.get("NO_COLOR") else "auto")
