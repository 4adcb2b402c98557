"""The report for people: one table, one line per cell and target."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from polycast.bench.machine import Machine
from polycast.bench.report import CellReport, Report

UNITS = (("M", 1_000_000), ("k", 1_000))
DECIMALS_MATTER_BELOW = 10


def make_table(report: Report) -> Table:
    title = f"deliveries per second, {report.rounds} rounds of {report.seconds:g} s"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("cell", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for heading in ("median", "best", "MB/s", "polycast is", "from..to"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in report.cells:
        for number, target in enumerate(cell.outcomes):
            table.add_row(cell.cell.name if number == 0 else "", target, *_numbers(cell, target))
        table.add_section()
    return table


def _numbers(cell: CellReport, target: str) -> Iterator[str]:
    rate, best, ratio = cell.median_rate(target), cell.best_rate(target), cell.ratio(target)
    yield human(rate) if rate else "error"
    yield human(best) if best else ""
    yield f"{rate * cell.cell.payload_bytes / 1e6:,.0f}" if rate else ""
    yield f"{times(ratio.median)}x" if ratio else ""
    yield f"{times(ratio.low)}..{times(ratio.high)}" if ratio else ""


def human(rate: float) -> str:
    """Three digits that matter, and a unit: 1.23M, 45.6k, 789."""
    unit, size = next(((unit, size) for unit, size in UNITS if rate >= size), ("", 1))
    return f"{rate / size:#.3g}".rstrip(".") + unit


def times(ratio: float) -> str:
    """Two decimals while they tell something: 0.45, 1.23, 45.6."""
    return f"{ratio:.2f}" if ratio < DECIMALS_MATTER_BELOW else f"{ratio:.1f}"


def notes(report: Report) -> Iterator[str]:
    """What belongs under the table, as markup: machine, versions, what was missing, what went wrong."""
    yield escape(_machine(report.machine))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield escape(f"{versions}; polycast speaks {report.dialect}")
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
