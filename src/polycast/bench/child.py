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
OUTPUT = "output.txt"


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """In the system's place for such, or in `parent`: what is to be fsynced belongs on a disk."""
    with tempfile.TemporaryDirectory(prefix="polycast-bench-", dir=parent) as name:
        yield Path(name).resolve()


@contextmanager
def running(command: list[str], folder: Path, ready: Callable[[str], bool]) -> Iterator[str]:
    """Run a command until the block ends; yields what it had printed when `ready` was content with that."""
    process = launch(command, folder)
    try:
        yield await_ready(process, folder, ready)
    finally:
        stop(process)


def launch(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """It prints into a file, not a pipe: nobody has to read while it runs, and none of it can block."""
    with (folder / OUTPUT).open("wb") as sink:
        return subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )


def await_ready(
    process: subprocess.Popen[bytes],
    folder: Path,
    ready: Callable[[str], bool],
    poll_seconds: float = POLL_SECONDS,
) -> str:
    """What a launched process had printed when `ready` was content with that."""
    deadline = monotonic() + START_LIMIT_SECONDS
    while True:
        ended = process.poll() is not None
        said = (folder / OUTPUT).read_text(errors="replace")
        last_words = said.strip()[-LAST_WORDS_LIMIT:] or "nothing"
        if ended:
            raise StartError(f"it ended with code {process.returncode} and said: {last_words}")
        if ready(said):
            return said
        if monotonic() > deadline:
            raise StartError(f"not ready after {START_LIMIT_SECONDS:g} s; it said: {last_words}")
        sleep(poll_seconds)


def stop(process: subprocess.Popen[bytes], limit_seconds: float = STOP_LIMIT_SECONDS) -> None:
    """Ask it to end, and end it if it does not."""
    process.terminate()
    try:
        process.wait(limit_seconds)
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
