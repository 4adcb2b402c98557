"""Rounds: Polycast and its peers take turns, so that noise hits all of them.

    for each cell:    start every target (Polycast once per dialect), fill its log if the cell needs one
      for each round:   measure each target with a new driver process; the first target rotates

`start` and `catch-up` cells have their own rounds (see `start_times`, `catch_up`).
A target that fails loses its own numbers only.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from polycast.bench.acked_publishing import fence, fill
from polycast.bench.catch_up import TARGETS as CATCH_UP_TARGETS
from polycast.bench.catch_up import measure_catch_up
from polycast.bench.cells import Cell, choose_cells
from polycast.bench.disk_speed import DISK, FDATASYNC
from polycast.bench.driver_process import run_driver
from polycast.bench.job import WINDOW_BYTES, Job, Outcome
from polycast.bench.log_counters import LogCounters, read_log_counters
from polycast.bench.machine import describe_machine, fsync_seconds
from polycast.bench.plot import draw
from polycast.bench.report import BenchReport, CellReport
from polycast.bench.report_table import make_tables, notes
from polycast.bench.start_times import TARGETS as START_TARGETS
from polycast.bench.start_times import measure_starts
from polycast.bench.targets import (
    Ports,
    Target,
    choose_peers,
    cluster_target,
    disk_target,
    peer_target,
    polycast_target,
    relay_target,
)
from polycast.errors import PolycastError, StartError, UsageError
from polycast.version import VERSION

DESCRIPTORS_NEEDED = 1024
LOG_OFF, LOG_ON = "log off", "log on"
MEASURES = {"start": measure_starts, "catch-up": measure_catch_up}
"""Kinds with rounds of their own."""
TURNS = {"start": START_TARGETS, "catch-up": CATCH_UP_TARGETS}


@dataclass(frozen=True)
class CellPlan:
    """The targets that take turns in a cell: `ours` are Polycast."""

    cell: Cell
    ours: list[Target]
    others: list[Target]

    @property
    def targets(self) -> list[Target]:
        return [*self.ours, *self.others]

    @property
    def turns(self) -> int:
        """Per round."""
        return len(TURNS.get(self.cell.kind, self.targets))


def plan_cells(cells: Sequence[Cell], peers: Mapping[str, Target], scratch: Path | None) -> Iterator[CellPlan]:
    """`peers`: those installed, by name; `scratch`: the folder for logs.

    `logged` and `open-loop` cells have a plan per dialect: they compare it with itself, log off.
    """
    for cell in cells:
        others = [peers[name] for name in cell.peers if name in peers]
        if cell.kind in MEASURES:
            yield CellPlan(cell, [], [])
        elif cell.kind in ("logged", "open-loop"):
            for dialect in cell.dialects:
                yield _plan_log_on_and_off(replace(cell, dialects=(dialect,)), dialect, others, scratch)
        elif cell.kind == "durable":
            ours = [_durable_target(dialect, scratch) for dialect in cell.dialects]
            yield CellPlan(cell, ours, [*others, disk_target(FDATASYNC, scratch)])
        else:
            yield CellPlan(cell, [_target(cell, dialect, scratch) for dialect in cell.dialects], others)


def _target(cell: Cell, dialect: str, scratch: Path | None) -> Target:
    with_log = cell.kind != "live"
    if cell.cluster:
        return cluster_target(dialect, scratch)
    return polycast_target(dialect, with_log, scratch if with_log else None)


def _plan_log_on_and_off(cell: Cell, dialect: str, others: list[Target], scratch: Path | None) -> CellPlan:
    """Where rates count, the log off is a peer of the log on; where delays count, both are beside the peers."""
    on, off = polycast_target(dialect, with_log=True, scratch=scratch), polycast_target(dialect)
    if cell.kind == "open-loop":
        return CellPlan(cell, [off, replace(on, name=LOG_ON)], [*others, relay_target()])
    return CellPlan(cell, [on], [replace(off, name=LOG_OFF), *others, disk_target(DISK, scratch)])


def _durable_target(dialect: str, scratch: Path | None) -> Target:
    """A message arrives when it is durable; hermod acknowledges it then."""
    if dialect == "hermod":
        return replace(polycast_target(dialect, with_log=True, scratch=scratch), name=f"{dialect} ack")
    target = polycast_target(dialect, with_log=True, scratch=scratch, settings=("log.delivery=committed",))
    return replace(target, name=dialect)


def run(
    cells: Sequence[str] | None,
    peers: Sequence[str] | None,
    rounds: int,
    seconds: float,
    out: Path,
    console: Console,
    dialects: Sequence[str] | None = None,
    messages: int | None = None,
) -> BenchReport:
    """Measures, prints the tables on `console`, and writes `bench.json`, `bench.svg` and `bench.png` into `out`.

    None: all cells, all installed peers, the dialects and the number of `messages` that each cell declares. An
    unknown name raises `UsageError`. Logs are in `out` during the run. A failed target does not raise: see
    `BenchReport.failed`.
    """
    if rounds < 1 or seconds <= 0:
        raise UsageError(
            f"{rounds} rounds of {seconds:g} s measure nothing", hint="at least 1 round, more than 0 s"
        )
    chosen = choose_cells(cells, dialects)
    if messages is not None:
        chosen = [cell.storing(messages) for cell in chosen]
    named = {name for cell in chosen for name in cell.peers}
    candidates = {peer: peer_target(peer, out) for peer in choose_peers(peers) if peer.name in named}
    present = {target.name: target for target in candidates.values() if target}
    out.mkdir(parents=True, exist_ok=True)
    report = BenchReport(
        machine=describe_machine(),
        version=VERSION,
        rounds=rounds,
        seconds=seconds,
        window_bytes=WINDOW_BYTES,
        fsync_seconds=fsync_seconds(out),
        peers={target.name: target.version for target in present.values()},
        missing={peer.name: peer.cure for peer, target in candidates.items() if not target},
        cells=_measure_plans(list(plan_cells(chosen, present, out)), rounds, seconds, out, console),
    )
    _write_report(report, out, console)
    return report


def _measure_plans(
    plans: Sequence[CellPlan], rounds: int, seconds: float, scratch: Path, console: Console
) -> list[CellReport]:
    _raise_descriptor_limit()
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=rounds * sum(plan.turns for plan in plans))
        done = count()

        def show(cell: str, target: str) -> None:
            progress.update(task, description=f"{cell} {target}", completed=next(done))

        return [
            MEASURES[plan.cell.kind](plan.cell, rounds, scratch, show)
            if plan.cell.kind in MEASURES
            else measure_plan(plan, rounds, seconds, show)
            for plan in plans
        ]


def measure_plan(plan: CellPlan, rounds: int, seconds: float, show: Callable[[str, str], None]) -> CellReport:
    cell, targets = plan.cell, plan.targets
    outcomes: dict[str, list[Outcome]] = {target.name: [] for target in targets}
    with ExitStack() as stack:
        started = {target.name: _start(cell, target, stack) for target in targets}
        for number in range(rounds):
            for target in rotated(targets, number):
                show(cell.name, target.name)
                outcomes[target.name].append(_measure(cell, target, started[target.name], seconds))
    return CellReport(cell, outcomes, tuple(target.name for target in plan.ours))


def rotated(targets: Sequence[Target], number: int) -> list[Target]:
    """The order in round `number`: each target is first equally often."""
    shift = number % len(targets)
    return [*targets[shift:], *targets[:shift]]


def _start(cell: Cell, target: Target, stack: ExitStack) -> Ports | str:
    """The ports of the running target, or the error."""
    try:
        ports = stack.enter_context(target.start())
        if cell.stored:
            fill(cell, ports.publish)
    except (PolycastError, OSError) as error:
        return str(error)
    return ports


def _measure(cell: Cell, target: Target, started: Ports | str, seconds: float) -> Outcome:
    if isinstance(started, str):
        return Outcome(error=started)
    job = Job(
        target.wire,
        started.publish,
        started.subscribe,
        cell,
        cell.seconds(seconds),
        processes=started.processes,
        metrics_port=started.metrics,
        folder=started.folder,
    )
    if started.fence is None:
        return run_driver(job)
    try:
        before = read_log_counters(started.metrics)
        outcome = run_driver(job)
        return outcome if outcome.error else _fenced(outcome, started, before)
    except (PolycastError, OSError) as error:
        return Outcome(error=f"the log did not become durable: {error}")


def _fenced(outcome: Outcome, started: Ports, before: LogCounters) -> Outcome:
    """Waits until the log is durable: the next target gets an idle disk, and all bytes are counted."""
    assert started.fence is not None
    behind = fence(started.fence)
    log = read_log_counters(started.metrics).since(before)
    return replace(outcome, behind_seconds=behind, stored_bytes=log.written_bytes / log.messages)


def _raise_descriptor_limit() -> None:
    """Targets and driver inherit the limit; some defaults are too low for a hundred subscribers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS_NEEDED:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS_NEEDED, hard), hard))


def _write_report(report: BenchReport, out: Path, console: Console) -> None:
    report.write_json(out / "bench.json")
    for section in report.sections:
        for table in make_tables(report, section):
            console.print(table)
            console.print()
    for note in notes(report):
        console.print(note, highlight=False)
    try:
        draw(report, out / "bench.svg", out / "bench.png")
    except StartError as error:
        console.print(f"{error}\nhint: {error.hint}", highlight=False)
