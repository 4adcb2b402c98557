"""The report for people: a table per kind of cell, one line per cell and target."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from polycast.bench.machine import Machine
from polycast.bench.report import BenchReport, CellReport, Section

UNITS = (("M", 1_000_000), ("k", 1_000))
DECIMALS = ((10, 2), (100, 1))
"""(limit, decimals for ratios below it)."""
TIMED = ("live", "logged", "acked", "latency")
"""Kinds whose rounds last `--seconds`."""
BEHIND_SECONDS = 0.1
"""Report that the log was behind from this time on."""
SHORT_SECONDS = 0.1
STARTS = "from process start until ready, and the memory after it"


def make_tables(report: BenchReport, section: Section) -> Iterator[Table]:
    yield make_table(report, section)
    if any(cell.median_cpu(target) for cell in section.cells for target in cell.outcomes):
        yield make_cpu_table(section)


def make_table(report: BenchReport, section: Section) -> Table:
    """Lines of Polycast show the ratio to each peer, with the range of all rounds below."""
    starts, timed = section.kind == "start", section.kind in ("start", "latency")
    title = f"{STARTS if starts else section.heading}, {report.rounds} rounds"
    if section.kind in TIMED:
        title += f" of {report.seconds:g} s"
    table = _new_table(title, "median", "best", "MB" if timed else "MB/s", *section.peers)
    for cell in section.cells:
        for number, target in enumerate(cell.outcomes):
            name = cell.cell.name if number == 0 else ""
            figures = _durations(cell, target) if timed else _rates(cell, target)
            table.add_row(name, target, *figures, *_ratios(cell, target, section.peers))
        table.add_section()
    return table


def make_cpu_table(section: Section) -> Table:
    """How busy driver and target were. A driver at 100 % of a core was the limit, whatever the target could do."""
    table = _new_table(f"{section.heading}: CPU", "driver", "target", "ns/message")
    for cell in section.cells:
        for number, target in enumerate(cell.outcomes):
            table.add_row(cell.cell.name if number == 0 else "", target, *_cpu(cell, target))
        table.add_section()
    return table


def _new_table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, show_edge=False)
    table.add_column("cell", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cpu(cell: CellReport, target: str) -> Iterator[str]:
    if cpu := cell.median_cpu(target):
        yield f"{cpu.driver:.0%}"
        yield f"{cpu.target:.0%}"
        yield f"{cpu.message_seconds * 1e9:,.0f}"


def _rates(cell: CellReport, target: str) -> Iterator[str]:
    rate, best = cell.median_rate(target), cell.best_rate(target)
    yield human(rate) if rate else "error"
    yield human(best) if best else ""
    yield f"{rate * cell.cell.payload_bytes / 1e6:,.0f}" if rate else ""


def _durations(cell: CellReport, target: str) -> Iterator[str]:
    rate, best = cell.median_rate(target), cell.best_rate(target)
    yield duration(1 / rate) if rate else "error"
    yield duration(1 / best) if best else ""
    memory = cell.median_memory(target)
    yield f"{memory / 1e6:,.0f}" if memory else ""


def _ratios(cell: CellReport, target: str, peers: list[str]) -> Iterator[str]:
    for peer in peers if target in cell.ours else ():
        ratio = cell.ratio(target, peer) if peer in cell.peers else None
        yield f"{times(ratio.median)}x\n{times(ratio.low)}-{times(ratio.high)}" if ratio else ""


def duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= SHORT_SECONDS else f"{seconds * 1000:.2f} ms"


def human(rate: float) -> str:
    """Three significant digits and a unit: 1.23M, 45.6k, 789."""
    rate = float(f"{rate:.3g}")  # 999,800 is 1.00M
    unit, size = next(((unit, size) for unit, size in UNITS if rate >= size), ("", 1))
    return f"{rate / size:#.3g}".rstrip(".") + unit


def times(ratio: float) -> str:
    """0.45, 1.23, 45.6, 789."""
    decimals = next((decimals for below, decimals in DECIMALS if ratio < below), 0)
    return f"{ratio:.{decimals}f}"


def notes(report: BenchReport) -> Iterator[str]:
    """Lines under the tables, as markup: machine, versions, missing peers, errors."""
    yield from _legend(report)
    for cell in report.cells:
        if cell.cell.stored:
            yield f"{cell.cell.name}: {cell.cell.stored:,} messages of {cell.cell.payload_bytes} B in the log"
        for target in cell.outcomes:
            if (behind := cell.behind_seconds(target)) >= BEHIND_SECONDS:
                yield f"{cell.cell.name}, {target}: the log had everything up to {behind:.1f} s later"
    yield escape(_machine(report.machine)) + f", fsync {report.fsync_seconds * 1000:.2f} ms"
    versions = {"polycast": report.version, **report.peers}
    yield escape(", ".join(f"{name} {version}" for name, version in versions.items()))
    for name, cure in report.missing.items():
        yield f"[yellow]{name} is not installed[/]\nhint: {escape(cure)}"
    for cell in report.cells:
        for target in cell.outcomes:
            for error in dict.fromkeys(cell.errors(target)):
                yield f"[red]error[/] {escape(f'{cell.cell.name}, {target}: {error}')}"


def _legend(report: BenchReport) -> Iterator[str]:
    if any(section.peers for section in report.sections):
        yield "under a peer's name: how many times as fast Polycast was, and the range of all rounds"
    if any(cell.median_cpu(target) for cell in report.cells for target in cell.outcomes):
        yield "CPU: of one core, while the clock ran; ns/message: CPU time of the target per published message"


def _machine(machine: Machine) -> str:
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"{machine.system} {machine.kernel}, Python {machine.python}"
    )
