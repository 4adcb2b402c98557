"""The scale benchmark: its plans, its arithmetic, and all series in small against a real broker."""

from __future__ import annotations

import json
import resource
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from polycast.bench.cells import Cell
from polycast.bench.cpu_time import CpuTime
from polycast.bench.job import WINDOW_BYTES, Outcome
from polycast.bench.machine import describe_machine
from polycast.bench.pump import Flow
from polycast.bench.scale.__main__ import run, write
from polycast.bench.scale.connections import HOLDER_LIMIT, shares
from polycast.bench.scale.cycle import PAYLOAD, message_ns, message_rate
from polycast.bench.scale.file_limit import SPARE_FILES, clip, clip_note, raise_file_limit
from polycast.bench.scale.idle_connections import SOURCE_PORTS
from polycast.bench.scale.points import COLUMNS, ScalePoint, ScaleReport, SeriesReport, per_unit
from polycast.bench.scale.scale_plot import PANELS
from polycast.bench.scale.scale_table import make_scale_table, scale_notes
from polycast.bench.scale.series import SERIES, ScaleSeries, choose_series, measure_series
from polycast.bench.scale.subscriptions import CONNECTIONS
from polycast.bench.scale.throughput import summarize
from polycast.errors import RemoteError, UsageError

SMALL = {
    "topics": (2,),
    "payload": (16, 65_536),
    "subscribers": (3,),
    "exact": (200,),
    "prefix": (200,),
    "remembered": (300,),
    "forgotten": (300,),
    "connections": (20,),
}
SECONDS = 0.05


def console() -> Console:
    return Console(file=StringIO(), width=140)


# -- plans ---------------------------------------------------------------------------------------------------


def test_a_series_has_growing_sizes_and_declared_columns() -> None:
    for series in SERIES:
        assert list(series.sizes) == sorted(set(series.sizes))
        assert set(series.columns) <= set(COLUMNS)


def test_the_series_cover_what_the_capacity_page_describes() -> None:
    sizes = {series.name: series.sizes for series in SERIES}
    assert sizes["topics"] == (1, 10, 100, 1_000)
    assert (sizes["payload"][0], sizes["payload"][-1]) == (16, 1024 * 1024)
    assert {1, 10, 100, 1_000, 10_000} < set(sizes["subscribers"])
    assert sizes["exact"][-1] == sizes["prefix"][-1] == 100_000
    assert sizes["remembered"][-1] == 1_000_000
    assert sizes["connections"][-3:] == (10_000, 20_000, 50_000)


def test_every_connection_of_a_subscription_series_has_the_same_share() -> None:
    for series in choose_series(["exact", "prefix"]):
        assert all(size % CONNECTIONS == 0 for size in series.sizes)


def test_panels_name_columns_of_their_series() -> None:
    columns = {series.name: series.columns for series in SERIES}
    for panel in PANELS:
        for line in panel.lines:
            assert line.column in columns[line.series], panel.title


def test_series_are_chosen_by_name() -> None:
    assert [series.name for series in choose_series(["prefix", "topics"])] == ["topics", "prefix"]
    assert choose_series(None) == list(SERIES)
    with pytest.raises(UsageError, match="nonsense"):
        choose_series(["nonsense"])


def test_idle_connections_are_shared_by_processes_with_enough_ports() -> None:
    assert shares(1) == [1]
    assert shares(HOLDER_LIMIT) == [HOLDER_LIMIT]
    assert shares(2 * HOLDER_LIMIT + 7) == [HOLDER_LIMIT, HOLDER_LIMIT, 7]
    assert len(SOURCE_PORTS) > HOLDER_LIMIT


# -- the limit of open files ---------------------------------------------------------------------------------


def test_sizes_past_the_limit_of_open_files_become_the_largest_possible() -> None:
    assert clip([10, 100, 1_000], 5_000) == [10, 100, 1_000]
    assert clip([10, 100, 1_000], 500) == [10, 100, 500 - SPARE_FILES]
    assert clip([10, 400, 1_000, 2_000], 400 + SPARE_FILES) == [10, 400]
    assert clip([10, 100], SPARE_FILES) == []


def test_a_note_names_the_missing_sizes() -> None:
    assert clip_note([10, 100], 500) == ""
    assert "not measured: 1,000, 2,000; a process may open 500 files" in clip_note([10, 1_000, 2_000], 500)


def test_the_limit_of_open_files_is_raised_as_far_as_the_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = raise_file_limit(64)
    assert files == resource.getrlimit(resource.RLIMIT_NOFILE)[0] or before[0] == resource.RLIM_INFINITY
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


# -- arithmetic ----------------------------------------------------------------------------------------------


def test_a_rate_is_the_median_of_the_turns() -> None:
    cell = Cell("two", "2 subscribers", subscribers=2, payload_bytes=50)
    turns = [Outcome(1_000, 2_000, seconds, cpu=CpuTime(0.5, 1.0)) for seconds in (1.0, 2.0, 4.0)]
    values = summarize(cell, turns)
    assert (values["deliveries"], values["lowest"], values["highest"]) == (1_000, 500, 2_000)
    assert (values["published"], values["bytes"]) == (500, 50_000)
    assert (values["broker_cpu"], values["driver_cpu"]) == (0.5, 0.25)
    assert values["delivery_ns"] == 500_000


def test_a_cycle_is_one_message_per_topic() -> None:
    flow = Flow(chunks=4, elapsed=2.0, cpu=CpuTime(0.0, 1.0))
    assert message_rate(flow, topics=100) == 200
    assert message_ns(flow, topics=100) == 2_500_000
    assert len(PAYLOAD) == 100 < WINDOW_BYTES


def test_memory_per_unit_is_never_negative() -> None:
    assert per_unit(1_000, 5_000, 4) == 1_000
    assert per_unit(5_000, 1_000, 4) == 0


# -- the report ----------------------------------------------------------------------------------------------


def report_of(*points: ScalePoint, note: str = "") -> ScaleReport:
    series = SeriesReport(
        "connections", "idle connections", "connections", ("memory", "accepted"), [*points], note
    )
    return ScaleReport(describe_machine(), "1.2.3", 1.0, (0.5, 0.25), 20_000, [series])


def test_a_table_has_a_row_per_point() -> None:
    report = report_of(ScalePoint(10_000, {"memory": 2_000_000.0, "accepted": 15_000.0}))
    out = console()
    out.print(make_scale_table(report.series[0]))
    assert isinstance(out.file, StringIO)
    text = out.file.getvalue()
    assert "10,000" in text and "15.0k" in text and "accepted/s" in text
    assert not report.failed


def test_notes_have_missing_sizes_and_errors() -> None:
    report = report_of(ScalePoint(20_000, {}, "refused"), note="not measured: 50,000")
    lines = list(scale_notes(report))
    assert "connections: not measured: 50,000" in lines
    assert "connections 20,000: refused" in lines
    assert report.failed and not report.series[0].measured


def test_a_size_that_fails_does_not_end_its_series() -> None:
    def measure(size: int, seconds: float) -> dict[str, float]:
        if size == 2:
            raise RemoteError("wrong byte count")
        return {"memory": 1.0}

    series = ScaleSeries("faulty", "faulty", "things", (1, 2, 3), ("memory",), measure)
    shown: list[str] = []
    report = measure_series(series, SECONDS, 1_000, shown.append)
    assert [point.error for point in report.points] == ["", "wrong byte count", ""]
    assert shown == ["faulty 1", "faulty 2", "faulty 3"]


# -- a real run ----------------------------------------------------------------------------------------------


MAY_BE_ZERO = ("unit_bytes", "first_ns", "changed_ns", "again_ns", "delivery_ns", "broker_cpu", "driver_cpu")
"""CPU time is counted in hundredths of a second."""


@pytest.fixture(scope="module")
def report() -> ScaleReport:
    return run(None, SECONDS, console(), SMALL)


def test_every_series_is_measured(report: ScaleReport) -> None:
    assert [point.error for series in report.series for point in series.points if point.error] == []
    for series in report.series:
        assert tuple(point.size for point in series.points) == SMALL[series.name]
        for point in series.points:
            assert set(series.columns) <= set(point.values)
            assert all(point.values[name] >= 0 for name in series.columns)
            assert all(point.values[name] > 0 for name in series.columns if name not in MAY_BE_ZERO)


def test_the_report_is_written(report: ScaleReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install matplotlib")
    write(report, tmp_path)
    written = json.loads((tmp_path / "scale.json").read_text())
    assert [series["name"] for series in written["series"]] == [series.name for series in SERIES]
    assert written["series"][0]["points"][0]["values"]["deliveries"] > 0
    assert (tmp_path / "scale.png").stat().st_size > 0
    drawn = (tmp_path / "scale.svg").read_text()  # with the texts as comments
    assert all(f"<!-- {panel.title} -->" in drawn for panel in PANELS)
    assert all(f"<!-- {line.label} -->" in drawn for panel in PANELS for line in panel.lines)


def test_a_report_without_a_panel_has_no_plot(tmp_path: Path) -> None:
    report = report_of(ScalePoint(1, {"memory": 1.0, "accepted": 1.0}))
    forgotten = SeriesReport("forgotten", "", "topics", (), report.series[0].points)
    write(ScaleReport(report.machine, "1", 1.0, (0.0, 0.0), 1, [forgotten]), tmp_path)
    assert (tmp_path / "scale.json").exists() and not (tmp_path / "scale.png").exists()
