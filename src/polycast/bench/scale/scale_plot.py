"""The report as a plot: one panel per question, sizes on a logarithmic axis.

matplotlib is imported when drawing only: it is large, and optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polycast.bench.scale.points import ScaleReport, SeriesReport
from polycast.errors import StartError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#d1495b", "#00798c", "#edae49", "#66717e")
PANEL_INCHES = (5.2, 3.4)
PANELS_PER_ROW = 3
DOTS_PER_INCH = 110
LEAST_SPAN = 20.0
"""The highest value of an axis divided by its lowest, at least: noise must not look like a slope."""


@dataclass(frozen=True)
class Line:
    series: str
    column: str
    label: str
    scale: float = 1.0
    """Divides the values."""


@dataclass(frozen=True)
class Panel:
    title: str
    lines: tuple[Line, ...]


PANELS = (
    Panel("1 publisher, topics in turn: per second", (Line("topics", "deliveries", "deliveries"),)),
    Panel("payload size: per second", (
        Line("payload", "deliveries", "deliveries"), Line("payload", "bytes", "KB of payload", 1e3),
    )),
    Panel("subscribers of one topic: per second", (
        Line("subscribers", "deliveries", "deliveries"), Line("subscribers", "published", "published"),
    )),
    Panel("subscriptions, a topic each: CPU of the broker, ns per message", (
        Line("exact", "first_ns", "exact, new topics"), Line("exact", "again_ns", "exact, known topics"),
        Line("prefix", "changed_ns", "prefix, subscriptions changed"),
        Line("prefix", "again_ns", "prefix, known topics"),
    )),
    Panel("CPU of the broker: ns per delivery", (
        Line("topics", "delivery_ns", "by topics"), Line("subscribers", "delivery_ns", "by subscribers"),
        Line("connections", "delivery_ns", "by idle connections"),
    )),
    Panel("resident memory: MB", (
        Line("connections", "memory", "idle connections", 1e6), Line("remembered", "memory", "topics", 1e6),
        Line("exact", "memory", "exact subscriptions", 1e6), Line("prefix", "memory", "prefix subscriptions", 1e6),
    )),
)  # fmt: skip


def draw_scale(report: ScaleReport, *paths: Path) -> None:
    """The suffix of each path gives the format (svg, png)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StartError("no plot: matplotlib is not installed", hint="pip install matplotlib") from error
    by_name = {series.name: series for series in report.series}
    panels = [panel for panel in PANELS if any(line.series in by_name for line in panel.lines)]
    if not panels:
        return
    rows = -(-len(panels) // PANELS_PER_ROW)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * PANELS_PER_ROW, height * rows), layout="constrained")
    axes = figure.subplots(rows, PANELS_PER_ROW, squeeze=False).flatten()
    for each in axes:
        each.set_visible(False)
    for panel, each in zip(panels, axes, strict=False):
        _draw_panel(each, panel, by_name)
    for path in paths:
        figure.savefig(path, dpi=DOTS_PER_INCH)


def _draw_panel(axes: Axes, panel: Panel, by_name: dict[str, SeriesReport]) -> None:
    axes.set_visible(True)
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        if series := by_name.get(line.series):
            points = series.measured
            heights = [point.values[line.column] / line.scale for point in points]
            axes.plot(
                [point.size for point in points], heights, "-o", color=colour, label=line.label, markersize=4
            )
            axes.set_xlabel(series.unit if len(panel.lines) <= 2 else "number", fontsize=8)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _widen(axes)
    axes.grid(alpha=0.3)
    axes.legend(loc="best", fontsize=7)


def _widen(axes: Axes) -> None:
    low, high = axes.get_ylim()
    if low > 0 and high / low < LEAST_SPAN:
        factor = (LEAST_SPAN * low / high) ** 0.5
        axes.set_ylim(low / factor, high * factor)
