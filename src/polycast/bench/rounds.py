"""Rounds: Polycast and its peers take turns, so that a noisy machine is noisy for all of them.

    for each cell:    start every target once (Polycast once for each dialect)
      for each round:   measure each target, each by a driver process of its own; who is first rotates

A target that fails costs its own numbers, never the run.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from polycast.bench.cells import Cell, choose_cells
from polycast.bench.job import WINDOW_BYTES, Job, Outcome
from polycast.bench.machine import describe_machine
from polycast.bench.plot import draw
from polycast.bench.report import CellReport, Report
from polycast.bench.table import make_table, notes
from polycast.bench.targets import Ports, Target, choose_peers, peer_target, polycast_target
from polycast.errors import StartError, UsageError
from polycast.version import VERSION

DRIVER = [sys.executable, "-m", "polycast.bench.driver"]
DRIVER_LIMIT_SECONDS = 120.0
DESCRIPTORS_NEEDED = 1024


def run(
    cells: Sequence[str] | None,
    peers: Sequence[str] | None,
    rounds: int,
    seconds: float,
    out: Path,
    console: Console,
    dialects: Sequence[str] | None = None,
) -> Report:
    """Measure, print the table on `console`, and write `bench.json`, `bench.svg` and `bench.png` into `out`.

    None means all cells, all peers that are installed, and the dialects that each cell names itself; an
    unknown name raises `UsageError`. A target's failure does not raise: look at `Report.failed` for the exit
    code.
    """
    if rounds < 1 or seconds <= 0:
        raise UsageError(
            f"{rounds} rounds of {seconds:g} s measure nothing", hint="at least 1 round, more than 0 s"
        )
    chosen = choose_cells(cells, dialects)
    candidates = {peer: peer_target(peer) for peer in choose_peers(peers)}
    present = [target for target in candidates.values() if target]
    report = Report(
        machine=describe_machine(),
        version=VERSION,
        rounds=rounds,
        seconds=seconds,
        window_bytes=WINDOW_BYTES,
        peers={target.name: target.version for target in present},
        missing={peer.name: peer.cure for peer, target in candidates.items() if not target},
        cells=_measure_cells(chosen, present, rounds, seconds, console),
    )
    _publish(report, out, console)
    return report


def _measure_cells(
    cells: Sequence[Cell], peers: Sequence[Target], rounds: int, seconds: float, console: Console
) -> list[CellReport]:
    _raise_descriptor_limit()
    plan = [(cell, [*map(polycast_target, cell.dialects), *peers]) for cell in cells]
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=rounds * sum(len(targets) for _, targets in plan))

        done = count()

        def show(cell: Cell, target: Target) -> None:
            progress.update(task, description=f"{cell.name} {target.name}", completed=next(done))

        return [measure_cell(cell, targets, rounds, seconds, show) for cell, targets in plan]


def measure_cell(
    cell: Cell, targets: Sequence[Target], rounds: int, seconds: float, show: Callable[[Cell, Target], None]
) -> CellReport:
    outcomes: dict[str, list[Outcome]] = {target.name: [] for target in targets}
    with ExitStack() as stack:
        started = {target.name: _start(target, stack) for target in targets}
        for number in range(rounds):
            for target in rotated(targets, number):
                show(cell, target)
                outcomes[target.name].append(_measure(cell, target, started[target.name], seconds))
    return CellReport(cell, outcomes)


def rotated(targets: Sequence[Target], number: int) -> list[Target]:
    """The order of a round: each target is first, second and so on equally often."""
    shift = number % len(targets)
    return [*targets[shift:], *targets[:shift]]


def _start(target: Target, stack: ExitStack) -> Ports | str:
    """The running target's ports, or why it does not run."""
    try:
        return stack.enter_context(target.start())
    except StartError as error:
        return str(error)


def _measure(cell: Cell, target: Target, started: Ports | str, seconds: float) -> Outcome:
    if isinstance(started, str):
        return Outcome(error=started)
    job = Job(target.wire, started.publish, started.subscribe, cell, seconds)
    limit = DRIVER_LIMIT_SECONDS + 2 * seconds
    try:
        done = subprocess.run(
            DRIVER, input=job.to_json(), capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        return Outcome(error=f"the driver was not finished after {limit:g} s")
    except subprocess.CalledProcessError as error:
        return Outcome(error=f"the driver failed: {error.stderr.strip()[-500:]}")
    return Outcome.from_json(done.stdout)


def _raise_descriptor_limit() -> None:
    """Targets and driver inherit it; a hundred subscribers are too many for some systems' default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS_NEEDED:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS_NEEDED, hard), hard))


def _publish(report: Report, out: Path, console: Console) -> None:
    out.mkdir(parents=True, exist_ok=True)
    report.write_json(out / "bench.json")
    console.print(make_table(report))
    for note in notes(report):
        console.print(note, highlight=False)
    try:
        draw(report, out / "bench.svg", out / "bench.png")
    except StartError as error:
        console.print(f"{error}\nhint: {error.hint}", highlight=False)
