"""Start times: from process start until ready, and the memory after it.

    fill a log once and stop the broker
    each round:  start on an empty log (last in every other round)
                 start on the full log after a clean stop; kill the broker
                 start on the full log after the kill; stop the broker

After each start on the full log its last messages are read, off the clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from polycast.bench.acked_publishing import fill
from polycast.bench.cells import Cell
from polycast.bench.job import Outcome
from polycast.bench.log_replay import verify_end
from polycast.bench.report import CellReport
from polycast.bench.target_process import await_ready, launch, stop, temporary_folder
from polycast.bench.targets import is_ready, polycast_command, read_listening
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
        verify_end(cell, started.ports["hermod.sub"])
        return started.outcome


@contextmanager
def _started(data: Path, stopping: bool) -> Iterator[Started]:
    """A broker on this data folder; stopped on exit if `stopping`, otherwise killed."""
    data.mkdir(exist_ok=True)
    start = perf_counter()
    process = launch(polycast_command(LISTENERS, data), data)
    try:
        output = await_ready(process, data, is_ready, POLL_SECONDS)
        elapsed = perf_counter() - start
        memory = resident_bytes(process.pid)
        yield Started(read_listening(output), Outcome(delivered=1, elapsed=elapsed, memory_bytes=memory))
        if stopping:
            stop(process, STOP_LIMIT_SECONDS)
            if process.returncode:
                raise StartError(f"the broker did not stop cleanly: exit code {process.returncode}")
    finally:
        process.kill()
        process.wait()


def resident_bytes(process_id: int) -> int:
    """Resident memory of a process; 0: unknown."""
    status = Path(f"/proc/{process_id}/status")
    found = re.search(r"^VmRSS:\s*(\d+) kB", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1]) * 1024 if found else 0
