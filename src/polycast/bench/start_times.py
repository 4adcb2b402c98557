"""Start times: from process start until ready, and the memory after it.

    fill a log once and stop the broker
    each round:  start on an empty log (last in every other round)
                 start on the full log after a clean stop; kill the broker
                 start on the full log after the kill; stop the broker

After each start on the full log its last messages are read, off the clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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


def measure_starts(cell: Cell, rounds: int, scratch: Path | None, show: Callable[[str, str], None]) -> CellReport:
    outcomes: dict[str, list[Outcome]] = {name: [] for name in TARGETS}

    def take(name: str, work: Callable[[], Outcome]) -> None:
        show(cell.name, name)
        outcomes[name].append(_attempt(work))

    with temporary_folder(scratch) as folder:
        full, empty = folder / "full", folder / "empty"
        filled = _attempt(lambda: _start(full, True, lambda ports: fill(cell, ports["hermod.pub"])))

        def start_full(stopping: bool) -> Outcome:
            if filled.error:
                return filled
            return _start(full, stopping, lambda ports: verify_end(cell, ports["hermod.sub"]))

        for number in range(rounds):
            if number % 2 == 0:
                take(EMPTY, lambda: _start(empty, stopping=True))
            take(STOPPED, lambda: start_full(stopping=False))
            take(KILLED, lambda: start_full(stopping=True))
            if number % 2 == 1:
                take(EMPTY, lambda: _start(empty, stopping=True))
    return CellReport(cell, outcomes, ours=(STOPPED, KILLED))


def _attempt(work: Callable[[], Outcome]) -> Outcome:
    try:
        return work()
    except (PolycastError, OSError) as error:
        return Outcome(error=str(error))


def _start(data: Path, stopping: bool, use: Callable[[dict[str, int]], None] = lambda ports: None) -> Outcome:
    """Starts a broker on this data folder, calls `use` with its ports, then stops or kills the broker."""
    data.mkdir(exist_ok=True)
    start = perf_counter()
    process = launch(polycast_command(LISTENERS, data), data)
    try:
        output = await_ready(process, data, is_ready, POLL_SECONDS)
        elapsed = perf_counter() - start
        memory = resident_bytes(process.pid)
        use(read_listening(output))
        if stopping:
            stop(process, STOP_LIMIT_SECONDS)
            if process.returncode:
                raise StartError(f"the broker did not stop cleanly: exit code {process.returncode}")
        return Outcome(delivered=1, elapsed=elapsed, memory_bytes=memory)
    finally:
        process.kill()
        process.wait()


def resident_bytes(process_id: int) -> int:
    """Resident memory of a process; 0: unknown."""
    status = Path(f"/proc/{process_id}/status")
    found = re.search(r"^VmRSS:\s*(\d+) kB", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1]) * 1024 if found else 0
