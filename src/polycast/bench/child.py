"""Child: a server process that lives as long as a `with` block, in a temporary folder of its own."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from polycast.bench.links import HOST
from polycast.errors import StartError

START_LIMIT_SECONDS = 20.0
STOP_LIMIT_SECONDS = 5.0
CONNECT_LIMIT_SECONDS = 1.0
POLL_SECONDS = 0.02
LAST_WORDS_LIMIT = 500


@contextmanager
def temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="polycast-bench-") as name:
        yield Path(name)


@contextmanager
def running(command: list[str], folder: Path, ready: Callable[[str], bool]) -> Iterator[str]:
    """Run a command until the block ends; yields what it had printed when `ready` was content with that.

    It prints into a file, not a pipe: nobody has to read while it runs, and none of it can block.
    """
    output = folder / "output.txt"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    try:
        yield _await_ready(process, output, ready)
    finally:
        _stop(process)


def _await_ready(process: subprocess.Popen[bytes], output: Path, ready: Callable[[str], bool]) -> str:
    deadline = monotonic() + START_LIMIT_SECONDS
    while True:
        ended = process.poll() is not None
        said = output.read_text(errors="replace")
        last_words = said.strip()[-LAST_WORDS_LIMIT:] or "nothing"
        if ended:
            raise StartError(f"it ended with code {process.returncode} and said: {last_words}")
        if ready(said):
            return said
        if monotonic() > deadline:
            raise StartError(f"not ready after {START_LIMIT_SECONDS:g} s; it said: {last_words}")
        sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def accepts(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((HOST, port), timeout=CONNECT_LIMIT_SECONDS).close()
    except OSError:
        return False
    return True
