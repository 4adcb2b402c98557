"""The benchmark of Spark: its test data, and the comparison of `at` with `path`. Times are not asserted."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from polycast.bench.spark import __main__ as bench
from polycast.bench.spark import rows
from polycast.bench.spark.comparisons import COMPARISONS, REMOTE_COMPARISONS, BenchData
from polycast.bench.spark.live import broker
from polycast.log.files.folder import segments
from polycast.log.read.catalog import offset_bounds

ROWS, HOT_ROWS = 2000, 300
ARGUMENTS = Namespace(rows=ROWS, rounds=1, cell=None)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SEGMENT_ROWS", 1000)
    monkeypatch.setattr(rows, "GROUP_ROWS", 100)
    monkeypatch.setattr(bench, "HOT_ROWS", HOT_ROWS)


@pytest.mark.parametrize(("hot", "firsts"), [(0, [0, 1000]), (HOT_ROWS, [0, 1000, 1700]), (9999, [0])])
def test_a_log_of_sealed_and_hot_segments(tmp_path: Path, hot: int, firsts: list[int]) -> None:
    folder = tmp_path / "log"
    rows.write_log(folder, ROWS, hot)
    found = segments(folder)
    assert [segment.first for segment in found] == firsts
    assert [segment.sealed for segment in found] == [segment.first < ROWS - hot for segment in found]
    assert offset_bounds(folder) == (0, ROWS)


def test_cells_are_chosen_by_name() -> None:
    names = [comparison.name for comparison in (*COMPARISONS, *REMOTE_COMPARISONS)]
    assert len(set(names)) == len(names)
    assert bench.choose(REMOTE_COMPARISONS, ARGUMENTS) == list(REMOTE_COMPARISONS)
    assert bench.choose(COMPARISONS, Namespace(cell=["full scan, at"])) == []


def test_at_and_path_have_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "data" / "log"
    rows.write_log(log, ROWS, HOT_ROWS)
    with broker(tmp_path, ["log.seal=false"]) as addresses:
        data = BenchData(spark, log, tmp_path, tmp_path, addresses["hermod.pub"])
        assert data.broker_rows().collect() == data.log_rows().collect()
    assert [segment.sealed for segment in segments(log)][:3] == [True, True, False]


def test_the_table_of_at_and_path(spark: SparkSession, tmp_path: Path) -> None:
    cells = bench.measure_remote(REMOTE_COMPARISONS, spark, tmp_path, ARGUMENTS)
    assert [cell["cell"] for cell in cells] == [comparison.name for comparison in REMOTE_COMPARISONS]
    for cell in cells:
        assert cell["lowest"] <= cell["ratio"] <= cell["highest"] and cell["aim"] == 0.7
        assert cell["ours"] > 0 and cell["baseline"] > 0
    console = Console(width=200, record=True)
    console.print(bench.to_table("title", ("at", "path"), cells))
    lines = console.export_text().splitlines()
    assert [name for name in ("cell", "at", "path", "ratio", "range", "aim") if name not in lines[2]] == []
    assert all(any(cell["cell"] in line for line in lines) for cell in cells)
