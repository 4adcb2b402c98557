"""Measured points, their columns, and the report: the same columns serve the table, the plot and the JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from polycast.bench.machine import Machine
from polycast.bench.report_table import duration, human

Values = Mapping[str, float]


@dataclass(frozen=True)
class ScalePoint:
    """The values of one size, by column. With an `error`, there are none."""

    size: int
    values: Values
    error: str = ""


@dataclass(frozen=True)
class ScaleColumn:
    name: str
    heading: str
    text: Callable[[float], str]
    meaning: str


def _megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.0%}"


COLUMNS = {
    column.name: column
    for column in (
        ScaleColumn("deliveries", "deliveries/s", human, "messages delivered per second, to all subscribers"),
        ScaleColumn("bytes", "MB/s", _megabytes, "payload bytes delivered per second"),
        ScaleColumn("published", "published/s", human, "messages published per second"),
        ScaleColumn("delivery_ns", "ns/delivery", _whole, "CPU time of the broker per delivery"),
        ScaleColumn("broker_cpu", "broker CPU", _share, "of one core, while the clock ran"),
        ScaleColumn("driver_cpu", "driver CPU", _share, "of one core, while the clock ran"),
        ScaleColumn("subscribe_seconds", "to subscribe", duration, "until the last subscription was active"),
        ScaleColumn("first", "first/s", human, "messages per second of the first cycle: every topic is new"),
        ScaleColumn("first_ns", "first ns", _whole, "CPU time of the broker per message of the first cycle"),
        ScaleColumn("again", "again/s", human, "messages per second of the later cycles: the topics are known"),
        ScaleColumn("again_ns", "again ns", _whole, "CPU time of the broker per message of the later cycles"),
        ScaleColumn("changed_ns", "changed ns", _whole, "the same, in a cycle after one more subscription"),
        ScaleColumn("accept_seconds", "to accept", duration, "until the last connection was greeted"),
        ScaleColumn("accepted", "accepted/s", human, "connections per second"),
        ScaleColumn("memory", "MB", _megabytes, "resident memory of the broker"),
        ScaleColumn("peak", "peak MB", _megabytes, "highest resident memory of the broker"),
        ScaleColumn("unit_bytes", "B each", _whole, "resident memory that one more takes"),
    )
}
"""By name."""


@dataclass(frozen=True)
class SeriesReport:
    name: str
    title: str
    unit: str
    """The meaning of a size."""
    columns: Sequence[str]
    points: list[ScalePoint]
    note: str = ""
    """Why sizes are missing or smaller."""

    @property
    def measured(self) -> list[ScalePoint]:
        return [point for point in self.points if not point.error]


@dataclass(frozen=True)
class ScaleReport:
    machine: Machine
    version: str
    """Of Polycast."""
    seconds: float
    load: tuple[float, float]
    """The load average over one minute, before and after the run."""
    file_limit: int
    series: list[SeriesReport]

    @property
    def failed(self) -> bool:
        return any(point.error for series in self.series for point in series.points)

    def write_json(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def per_unit(before: int, after: int, count: int) -> float:
    """Bytes that each of `count` took; never negative: a process may return memory meanwhile."""
    return max(0, after - before) / count
