"""The report as tables and lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from polycast.bench.machine import Machine
from polycast.bench.scale.points import COLUMNS, ScaleReport, SeriesReport, Values


def make_scale_table(series: SeriesReport) -> Table:
    table = Table(
        title=series.title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, show_edge=False
    )
    table.add_column(series.unit, justify="right", no_wrap=True)
    for name in series.columns:
        table.add_column(COLUMNS[name].heading, justify="right", no_wrap=True)
    for point in series.points:
        table.add_row(f"{point.size:,}", *_texts(series, point.values))
    return table


def _texts(series: SeriesReport, values: Values) -> Iterator[str]:
    for name in series.columns:
        yield COLUMNS[name].text(values[name]) if name in values else "error"


def scale_notes(report: ScaleReport) -> Iterator[str]:
    """Lines under the tables: meanings, machine, missing sizes, errors."""
    used = {name for series in report.series for name in series.columns}
    for name, column in COLUMNS.items():
        if name in used:
            yield f"{column.heading}: {column.meaning}"
    yield f"Polycast {report.version}, log off, turns of {report.seconds:g} s; {describe(report.machine)}"
    yield f"load average {report.load[0]:.1f} before the run, {report.load[1]:.1f} after it"
    for series in report.series:
        if series.note:
            yield f"{series.name}: {series.note}"
        for point in series.points:
            if point.error:
                yield f"{series.name} {point.size:,}: {point.error}"


def describe(machine: Machine) -> str:
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"{machine.system} {machine.kernel}, Python {machine.python}, {machine.date}"
    )
