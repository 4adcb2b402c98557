"""`make bench-spark`: compares Polycast with Spark's Parquet, and a broker's rows with those of its folder.

Prints tables and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from polycast.bench.machine import describe_machine
from polycast.bench.spark.comparisons import COMPARISONS, REMOTE_COMPARISONS, BenchData, Comparison
from polycast.bench.spark.live import RATE, Freshness, broker, sink_rate
from polycast.bench.spark.rows import write_log
from polycast.bench.target_process import temporary_folder
from polycast.spark import session
from polycast.spark.session import to_settings

MASTER = "local[2]"
WARM_SECONDS, FRESH_SECONDS = 30.0, 30.0
SINK_ROWS = 1_000_000
HOT_ROWS = 300_000
"""About one hot segment of the default size."""

console = Console()


def main(arguments: argparse.Namespace) -> None:
    spark = session(MASTER)
    found: dict[str, Any] = {"machine": asdict(describe_machine()), "settings": to_settings(MASTER)}
    with temporary_folder(arguments.scratch) as folder:
        console.print(
            f"{arguments.rows:,} rows of 100 bytes, {MASTER}, {arguments.rounds} rounds after one to warm up"
        )
        if chosen := choose(COMPARISONS, arguments):
            data = BenchData(spark, folder / "rows" / "log", folder / "parquet", folder / "scratch")
            write_log(data.log, arguments.rows)
            data.log_rows().write.option("compression", "zstd").parquet(str(data.parquet))
            found["cells"] = [measure(each, data, arguments) for each in chosen]
        if chosen := choose(REMOTE_COMPARISONS, arguments):
            found["remote"] = measure_remote(chosen, spark, folder, arguments)
        if not arguments.cell or "live" in arguments.cell:
            found["live"] = _measure_broker(spark, folder, arguments.rounds)
    _show(found)
    arguments.out.mkdir(exist_ok=True)
    (arguments.out / "spark.json").write_text(json.dumps(found, indent=2))
    spark.stop()


def choose(comparisons: Sequence[Comparison], arguments: argparse.Namespace) -> list[Comparison]:
    return [each for each in comparisons if not arguments.cell or each.name in arguments.cell]


def measure(comparison: Comparison, data: BenchData, arguments: argparse.Namespace) -> dict[str, Any]:
    ours: list[float] = []
    baseline: list[float] = []
    for number in range(arguments.rounds + 1):
        turns = [(ours, comparison.ours), (baseline, comparison.baseline)]
        for rates, act in turns if number % 2 else reversed(turns):
            started = time.perf_counter()
            act(data)
            rates.append(arguments.rows / (time.perf_counter() - started))
    ratios = [one / other for one, other in zip(ours[1:], baseline[1:], strict=True)]
    result = {"ours": median(ours[1:]), "baseline": median(baseline[1:]), "ratio": median(ratios)}
    console.print(f"  {comparison.name}: {result['ratio']:.2f}x, aim {comparison.aim}")
    return {
        "cell": comparison.name,
        "aim": comparison.aim,
        "lowest": min(ratios),
        "highest": max(ratios),
        **result,
    }


def measure_remote(
    chosen: Sequence[Comparison], spark: SparkSession, folder: Path, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """The folder is read while its broker runs. The broker does not seal: all rounds read the same hot segment."""
    home = folder / "remote"
    log = home / "data" / "log"
    write_log(log, arguments.rows, HOT_ROWS)
    with broker(home, ["log.seal=false"]) as addresses:
        data = BenchData(spark, log, folder / "parquet", folder / "scratch", addresses["hermod.pub"])
        return [measure(each, data, arguments) for each in chosen]


def _measure_broker(spark: SparkSession, folder: Path, rounds: int) -> dict[str, Any]:
    with broker(folder) as addresses:
        rates = [sink_rate(spark, addresses["hermod.pub"], SINK_ROWS) for _ in range(rounds + 1)][1:]
        p50, p99 = Freshness(spark, folder / "data", addresses).measure(WARM_SECONDS, FRESH_SECONDS)
    return {"sink_rows_per_second": median(rates), "sink_range": [min(rates), max(rates)], "p50": p50, "p99": p99}


def _show(found: dict[str, Any]) -> None:
    if cells := found.get("cells"):
        console.print(to_table("rows per second, and the ratio to native Parquet", ("Polycast", "native"), cells))
    if cells := found.get("remote"):
        title = "rows per second from a broker (at), and the ratio to reading the folder of its log (path)"
        console.print(to_table(title, ("at", "path"), cells))
    if live := found.get("live"):
        low, high = live["sink_range"]
        rate = f"{live['sink_rows_per_second']:,.0f} rows/s committed ({low:,.0f}-{high:,.0f}), aim 500,000"
        console.print(f"sink: {rate}")
        fresh = f"p50 {live['p50'] * 1000:.0f} ms, p99 {live['p99'] * 1000:.0f} ms, aims 300 and 1,000"
        console.print(f"from publish to the subscriber of the sink's topic at {RATE:,} messages/s: {fresh}")
    settings = Table(title="settings", title_justify="left", show_header=False)
    for name, value in found["settings"].items():
        settings.add_row(name, value)
    console.print(settings)


def to_table(title: str, names: tuple[str, str], cells: Sequence[dict[str, Any]]) -> Table:
    """`names`: of what is measured, and of what it is measured beside."""
    table = Table(title=title, title_justify="left")
    for heading in ("cell", *names, "ratio", "range", "aim"):
        table.add_column(heading, justify="left" if heading == "cell" else "right")
    for cell in cells:
        rates = [f"{cell[name] / 1e6:.2f} M" for name in ("ours", "baseline")]
        span = f"{cell['lowest']:.2f}-{cell['highest']:.2f}"
        table.add_row(cell["cell"], *rates, f"{cell['ratio']:.2f}", span, f"{cell['aim']:g}")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cell", action="append", help="measure only this one; live: those with a broker")
    parser.add_argument("--scratch", type=Path, default=None, help="folder for temporary files")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    main(parser.parse_args())
