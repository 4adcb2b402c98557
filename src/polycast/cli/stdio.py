"""stdin, stdout and stderr, in whatever state they were given to us.

What cannot be written to stdout, or read from stdin, ends a command with words and code 1. What cannot be written
to stderr is only words, and nobody misses them who has closed it.
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
"""What can be wrong with a stream that we were given. Where somebody stopped reading, that is no trouble."""
REPLACEMENTS = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
"""How a stand-in is opened: such that using it fails, except for stderr."""


def reopen_closed() -> None:
    """Takes the numbers of streams that are closed, or else a connection would get them."""
    for name, flags in REPLACEMENTS.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def notice(words: str) -> None:
    """To stderr."""
    try:
        sys.stderr.write(words + "\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """What is left in it goes nowhere, and the interpreter does not complain on its way out."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def to_stdout_error(error: OSError) -> StartError | None:
    """What is wrong with stdout, if that is what the error is about."""
    if error.errno not in STREAM_ERRORS or error.filename is not None:
        return None
    discard(sys.stdout)
    return StartError(f"cannot write to stdout: {_reason(error)}")


def read_stdin() -> Iterator[bytes]:
    """What comes, as it comes."""
    try:
        while data := os.read(sys.stdin.fileno(), READ_BYTES):
            yield data
    except OSError as error:
        raise StartError(f"cannot read stdin: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)


def to_console(stream: TextIO) -> Console:
    """NO_COLOR means no bold either."""
    from rich.console import Console

    return Console(file=stream, color_system=None if os.environ.get("NO_COLOR") else "auto")
