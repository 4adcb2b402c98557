"""The report as a picture: rates on the left, Polycast's ratio to each peer with its range on the right.

matplotlib is imported when a picture is drawn and not before: it is large, and the rest works without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polycast.bench.report import CellReport, Report
from polycast.errors import StartError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#d1495b", "#00798c", "#edae49", "#66717e", "#8f5fa8", "#2e4057")
BAR_SHARE = 0.8
WIDTH_INCHES = 13.0
INCHES_PER_BAR = 0.16
LEFT_RATE = 10_000
"""Where the bars begin: on a log scale they must begin somewhere."""


def draw(report: Report, *paths: Path) -> None:
    """Draw the report into each of the paths; the suffix says the kind (svg, png)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StartError("no plot: matplotlib is not installed", hint="pip install matplotlib") from error
    targets = list(report.versions)
    height = 2.0 + INCHES_PER_BAR * len(targets) * len(report.cells)
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    rates, ratios = figure.subplots(1, 2, sharey=True)
    for number, target in enumerate(targets):
        _draw_rates(rates, report, target, number)
        _draw_ratios(ratios, report, target, number)
    _label(rates, report, "deliveries per second: median, and best as a mark (log scale)")
    _label(ratios, report, "Polycast's rate divided by the peer's: median and range (log scale)")
    ratios.axvline(1.0, color="black", linewidth=1)
    ratios.margins(x=0.1)  # room for the numbers
    rates.set_xlim(left=LEFT_RATE)
    rates.invert_yaxis()
    figure.legend(*rates.get_legend_handles_labels(), loc="outside lower left", ncols=len(targets))
    for path in paths:
        figure.savefig(path, dpi=120)


def _rows(report: Report, target: int) -> list[tuple[float, CellReport]]:
    """Each cell, and the height of the target's bar in it: cells are one apart, and their targets share that
    room."""
    offset = BAR_SHARE * ((target + 0.5) / len(report.versions) - 0.5)
    return [(number + offset, cell) for number, cell in enumerate(report.cells)]


def _draw_rates(axes: Axes, report: Report, target: str, number: int) -> None:
    rows = [(place, cell) for place, cell in _rows(report, number) if cell.rates(target)]
    places = [place for place, _ in rows]
    medians = [cell.median_rate(target) or 0.0 for _, cell in rows]
    bests = [cell.best_rate(target) or 0.0 for _, cell in rows]
    colour = COLOURS[number]
    axes.barh(places, medians, BAR_SHARE / len(report.versions), color=colour, label=target)
    axes.plot(bests, places, "|", color=colour, markersize=7)


def _draw_ratios(axes: Axes, report: Report, target: str, number: int) -> None:
    rows = [(place, cell.ratio(target)) for place, cell in _rows(report, number)]
    for place, ratio in rows:
        if ratio:
            axes.plot([ratio.low, ratio.high], [place, place], "-|", color=COLOURS[number])
            axes.plot([ratio.median], [place], "o", color=COLOURS[number], markersize=4)
            axes.annotate(
                f"  {ratio.median:.{0 if ratio.median >= 10 else 1}f}",
                (ratio.high, place),
                fontsize=7,
                va="center",
            )


def _label(axes: Axes, report: Report, title: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xscale("log")
    axes.set_yticks(range(len(report.cells)), [cell.cell.title for cell in report.cells], fontsize=8)
    axes.grid(axis="x", alpha=0.3)
