"""The report as a plot: rates or delays on the left, ratios to each peer with their range on the right.

matplotlib is imported when drawing only: it is large, and optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING

from polycast.bench.cells import TIMED_BY_DELAY
from polycast.bench.report import BenchReport, CellReport, Section
from polycast.bench.report_table import times
from polycast.errors import StartError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUR_COLOUR = "#d1495b"
PEER_COLOURS = ("#00798c", "#edae49", "#66717e", "#8f5fa8", "#2e4057")
BAR_SHARE = 0.8
WIDTH_INCHES = 13.0
INCHES_PER_ROW = 0.24
LEFT_SHARE = 0.5
"""The left edge as a share of the smallest rate, so that its bar stays visible."""
TITLE_ROWS = 3
"""Height of a section's title and axis, in rows."""
NUDGE = 0.3
"""Vertical distance between ratios to different peers, in rows: similar ratios must not overlap."""


@dataclass(frozen=True)
class PlotRow:
    """A target in a cell, or the title of a cell."""

    cell: CellReport
    target: str = ""


def draw(report: BenchReport, *paths: Path) -> None:
    """The suffix of each path gives the format (svg, png)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StartError("no plot: matplotlib is not installed", hint="pip install matplotlib") from error
    bands = [_rows(section) for section in report.sections]
    heights = [len(rows) + TITLE_ROWS for rows in bands]
    figure = Figure(figsize=(WIDTH_INCHES, 1.0 + INCHES_PER_ROW * sum(heights)), layout="constrained")
    axes = figure.subplots(len(bands), 2, sharey="row", squeeze=False, height_ratios=heights)
    for section, rows, (rates, ratios) in zip(report.sections, bands, axes, strict=True):
        _draw_section(section, rows, rates, ratios)
    for path in paths:
        figure.savefig(path, dpi=120)


def _rows(section: Section) -> list[PlotRow]:
    return [PlotRow(cell, target) for cell in section.cells for target in ("", *cell.brokers)]


def _draw_section(section: Section, rows: list[PlotRow], rates: Axes, ratios: Axes) -> None:
    colours = dict(zip(section.peers, PEER_COLOURS, strict=False))
    delayed = section.kind in TIMED_BY_DELAY
    for position, row in enumerate(rows):
        if row.target:
            (_draw_delays if delayed else _draw_rate)(rates, row, position, colours.get(row.target, OUR_COLOUR))
        if row.target in row.cell.ours:
            _draw_ratios(ratios, row, position, colours)
    marks = "p50, p99 and p99.9" if delayed else "median, and best as a mark"
    _label(rates, f"{section.heading}: {marks} (log scale)")
    compared = "p99" if delayed else "rate"
    _label(ratios, f"{compared} divided by the peer's: median and range (log scale)")
    _name_rows(rates, rows)
    ratios.axvline(1.0, color="black", linewidth=1)
    ratios.margins(x=0.1)  # room for the numbers
    if not delayed:
        rates.set_xlim(left=_left_rate(rows))
    ratios.tick_params(axis="y", length=0)
    rates.set_ylim(len(rows) - 0.5, -0.5)
    _draw_legend(ratios, colours)
    ratios.set_visible(bool(colours))


def _left_rate(rows: list[PlotRow]) -> float:
    known = [rate for row in rows if row.target and (rate := row.cell.median_rate(row.target))]
    return 10.0 ** (floor(log10(min(known, default=1.0) * LEFT_SHARE)))


def _draw_rate(axes: Axes, row: PlotRow, position: int, colour: str) -> None:
    median, best = row.cell.median_rate(row.target), row.cell.best_rate(row.target)
    if median and best:
        axes.barh(position, median, BAR_SHARE, color=colour)
        axes.plot(best, position, "|", color=colour, markersize=7)


def _draw_delays(axes: Axes, row: PlotRow, position: int, colour: str) -> None:
    if delays := row.cell.median_delays(row.target):
        times_us = [seconds * 1e6 for seconds in (delays.p50, delays.p99, delays.p999)]
        axes.plot([times_us[0], times_us[-1]], [position, position], "-", color=colour, linewidth=1.5)
        for marker, time in zip("|o>", times_us, strict=True):
            axes.plot([time], [position], marker, color=colour, markersize=6)


def _draw_ratios(axes: Axes, row: PlotRow, position: int, colours: dict[str, str]) -> None:
    middle = (len(colours) - 1) / 2
    for number, (peer, colour) in enumerate(colours.items()):
        ratio = row.cell.ratio(row.target, peer) if peer in row.cell.peers else None
        if ratio:
            height = position + NUDGE * (number - middle)
            axes.plot([ratio.low, ratio.high], [height, height], "-", color=colour, linewidth=1)
            axes.plot([ratio.median], [height], "o", color=colour, markersize=4)
            where = (ratio.high, height)
            axes.annotate(f"  {times(ratio.median)}", where, fontsize=6, va="center", color=colour)


def _draw_legend(axes: Axes, colours: dict[str, str]) -> None:
    for peer, colour in colours.items():
        axes.plot([], [], "-o", color=colour, markersize=4, label=f"to {peer}")
    if colours:
        axes.legend(loc="best", fontsize=8)


def _name_rows(axes: Axes, rows: list[PlotRow]) -> None:
    axes.set_yticks(range(len(rows)), [row.target or row.cell.cell.title for row in rows], fontsize=8)
    axes.tick_params(axis="y", length=0)
    for row, label in zip(rows, axes.get_yticklabels(), strict=True):
        label.set_fontweight("normal" if row.target else "bold")


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xscale("log")
    axes.grid(axis="x", alpha=0.3)
