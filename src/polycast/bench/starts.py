"""Starts: how long this broker takes from the start of its process until it is ready, and how large it then is.

    fill a log once and stop the broker
    each round:  start on an empty log (in every other round at the end)
                 start on the full log, which was left in order; kill the broker
                 start on the full log, which was not; stop the broker

After each start on the full log its last messages are read, off the clock: a start that loses the log is fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from polycast.bench.acked import fill
from polycast.bench.cells import Cell
from polycast.bench.child import await_ready, launch, stop, temporary_folder
from polycast.bench.job import Outcome
from polycast.bench.replay import prove_end
from polycast.bench.report import CellReport
from polycast.bench.targets import polycast_command, read_listening, says_ready
from polycast.bench.wires import WIRES
from polycast.errors import PolycastError, StartError

POLL_SECONDS = 0.002
STOP_LIMIT_SECONDS = 60.0
LISTENERS = WIRES["hermod"].listeners or ()
EMPTY, STOPPED, KILLED = "empty log", "stopped", "killed"
TARGETS = (STOPPED, KILLED, EMPTY)


@dataclass(frozen=True)
class Started:
    ports: dict[str, int]
    outcome: Outcome


def measure_starts(cell: Cell, rounds: int, scratch: Path | None, show: Callable[[str, str], None]) -> CellReport:
    outcomes: dict[str, list[Outcome]] = {name: [] for name in TARGETS}

    def take(name: str, work: Callable[[], Outcome]) -> None:
        show(cell.name, name)
        outcomes[name].append(_attempt(work))

    with temporary_folder(scratch) as folder:
        full, empty = folder / "full", folder / "empty"
        filled = _attempt(lambda: _fill(cell, full))
        for number in range(rounds):
            if number % 2 == 0:
                take(EMPTY, lambda: _start_empty(empty))
            take(STOPPED, lambda: filled if filled.error else _start_full(cell, full, stopping=False))
            take(KILLED, lambda: filled if filled.error else _start_full(cell, full, stopping=True))
            if number % 2 == 1:
                take(EMPTY, lambda: _start_empty(empty))
    return CellReport(cell, outcomes, ours=(STOPPED, KILLED))


def _attempt(work: Callable[[], Outcome]) -> Outcome:
    try:
        return work()
    except (PolycastError, OSError) as error:
        return Outcome(error=str(error))


def _fill(cell: Cell, data: Path) -> Outcome:
    with _started(data, stopping=True) as started:
        fill(cell, started.ports["hermod.pub"])
    return started.outcome


def _start_empty(data: Path) -> Outcome:
    with _started(data, stopping=True) as started:
        return started.outcome


def _start_full(cell: Cell, data: Path, stopping: bool) -> Outcome:
    with _started(data, stopping) as started:
        prove_end(cell, started.ports["hermod.sub"])
        return started.outcome


@contextmanager
def _started(data: Path, stopping: bool) -> Iterator[Started]:
    """A broker on this data folder, which is stopped in the end, or killed."""
    data.mkdir(exist_ok=True)
    begin = perf_counter()
    process = launch(polycast_command(LISTENERS, data), data)
    try:
        said = await_ready(process, data, says_ready, POLL_SECONDS)
        elapsed = perf_counter() - begin
        memory = resident_bytes(process.pid)
        yield Started(read_listening(said), Outcome(delivered=1, elapsed=elapsed, memory_bytes=memory))
        if stopping:
            stop(process, STOP_LIMIT_SECONDS)
            if process.returncode:
                raise StartError(f"the broker did not stop in order: it ended with code {process.returncode}")
    finally:
        process.kill()
        process.wait()


def resident_bytes(process_id: int) -> int:
    """How much memory a process occupies; 0 where the system does not tell."""
    status = Path(f"/proc/{process_id}/status")
    found = re.search(r"^VmRSS:\s*(\d+) kB", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1]) * 1024 if found else 0
