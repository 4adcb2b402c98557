"""The report for people: one table, one line per cell and target."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from polycast.bench.machine import Machine
from polycast.bench.report import CellReport, Report

UNITS = (("M", 1_000_000), ("k", 1_000))
DECIMALS = ((10, 2), (100, 1))
"""Below which ratio how many decimals tell something."""


def make_table(report: Report) -> Table:
    """A dialect's line says how it stands to each peer, with the range of all rounds underneath."""
    title = f"deliveries per second, {report.rounds} rounds of {report.seconds:g} s"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, show_edge=False)
    table.add_column("cell", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for heading in ("median", "best", "MB/s", *report.peers):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in report.cells:
        for number, target in enumerate(cell.outcomes):
            name = cell.cell.name if number == 0 else ""
            table.add_row(name, target, *_rates(cell, target), *_ratios(cell, target))
        table.add_section()
    return table


def _rates(cell: CellReport, target: str) -> Iterator[str]:
    rate, best = cell.median_rate(target), cell.best_rate(target)
    yield human(rate) if rate else "error"
    yield human(best) if best else ""
    yield f"{rate * cell.cell.payload_bytes / 1e6:,.0f}" if rate else ""


def _ratios(cell: CellReport, target: str) -> Iterator[str]:
    if target in cell.cell.dialects:
        for peer in cell.peers:
            ratio = cell.ratio(target, peer)
            yield f"{times(ratio.median)}x\n{times(ratio.low)}-{times(ratio.high)}" if ratio else ""


def human(rate: float) -> str:
    """Three digits that matter, and a unit: 1.23M, 45.6k, 789."""
    rate = float(f"{rate:.3g}")  # 999,800 is 1.00M
    unit, size = next(((unit, size) for unit, size in UNITS if rate >= size), ("", 1))
    return f"{rate / size:#.3g}".rstrip(".") + unit


def times(ratio: float) -> str:
    """The digits that tell something: 0.45, 1.23, 45.6, 789."""
    decimals = next((decimals for below, decimals in DECIMALS if ratio < below), 0)
    return f"{ratio:.{decimals}f}"


def notes(report: Report) -> Iterator[str]:
    """What belongs under the table, as markup: machine, versions, what was missing, what went wrong."""
    if report.peers:
        yield "under a peer's name: how many times as fast Polycast was, and the range of all rounds"
    yield escape(_machine(report.machine))
    versions = {"polycast": report.version, **report.peers}
    yield escape(", ".join(f"{name} {version}" for name, version in versions.items()))
    for name, cure in report.missing.items():
        yield f"[yellow]{name} is not installed[/]\nhint: {escape(cure)}"
    for cell in report.cells:
        for target in cell.outcomes:
            for error in dict.fromkeys(cell.errors(target)):
                yield f"[red]error[/] {escape(f'{cell.cell.name}, {target}: {error}')}"


def _machine(machine: Machine) -> str:
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"{machine.system} {machine.kernel}, Python {machine.python}"
    )
