"""Server processes of the benchmark, each in a temporary folder."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from polycast.bench.target_connections import HOST
from polycast.errors import StartError

START_LIMIT_SECONDS = 20.0
STOP_LIMIT_SECONDS = 5.0
CONNECT_LIMIT_SECONDS = 1.0
POLL_SECONDS = 0.02
OUTPUT_END_LIMIT = 500
OUTPUT = "output.txt"


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """In the system's temporary folder, or in `parent`: fsync needs a real disk."""
    with tempfile.TemporaryDirectory(prefix="polycast-bench-", dir=parent) as name:
        yield Path(name).resolve()


class RunningTarget(NamedTuple):
    output: str
    """Up to `ready`."""
    process: int


@contextmanager
def running(command: list[str], folder: Path, ready: Callable[[str], bool]) -> Iterator[RunningTarget]:
    """Runs a command until the block ends."""
    process = launch(command, folder)
    try:
        yield RunningTarget(await_ready(process, folder, ready), process.pid)
    finally:
        stop(process)


def launch(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Output goes to a file, not a pipe: it never blocks."""
    with (folder / OUTPUT).open("wb") as sink:
        return subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )


def await_ready(
    process: subprocess.Popen[bytes],
    folder: Path,
    ready: Callable[[str], bool],
    poll_seconds: float = POLL_SECONDS,
    limit_seconds: float = START_LIMIT_SECONDS,
) -> str:
    """Waits until `ready(output)`; returns the output."""
    deadline = monotonic() + limit_seconds
    while True:
        ended = process.poll() is not None
        output = (folder / OUTPUT).read_text(errors="replace")
        output_end = output.strip()[-OUTPUT_END_LIMIT:] or "nothing"
        if ended:
            raise StartError(f"it exited with code {process.returncode}; output: {output_end}")
        if ready(output):
            return output
        if monotonic() > deadline:
            raise StartError(f"not ready after {limit_seconds:g} s; output: {output_end}")
        sleep(poll_seconds)


def stop(process: subprocess.Popen[bytes], limit_seconds: float = STOP_LIMIT_SECONDS) -> None:
    """SIGTERM, then SIGKILL after the limit."""
    process.terminate()
    try:
        process.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=CONNECT_LIMIT_SECONDS).close()
    except OSError:
        return False
    return True
