"""`make bench-spark`: compares Polycast with Spark's Parquet, prints tables and writes JSON."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from polycast.bench.machine import describe_machine
from polycast.bench.spark.comparisons import COMPARISONS, BenchData, Comparison
from polycast.bench.spark.live import RATE, Freshness, broker, sink_rate
from polycast.bench.spark.rows import read_log, write_log
from polycast.bench.target_process import temporary_folder
from polycast.spark import session
from polycast.spark.session import to_settings

MASTER = "local[2]"
WARM_SECONDS, FRESH_SECONDS = 30.0, 30.0
SINK_ROWS = 1_000_000

console = Console()


def main(arguments: argparse.Namespace) -> None:
    spark = session(MASTER)
    found: dict[str, Any] = {"machine": asdict(describe_machine()), "settings": to_settings(MASTER)}
    with temporary_folder(arguments.scratch) as folder:
        data = BenchData(spark, folder / "rows" / "log", folder / "parquet", folder / "scratch")
        console.print(
            f"{arguments.rows:,} rows of 100 bytes, {MASTER}, {arguments.rounds} rounds after one to warm up"
        )
        write_log(data.log, arguments.rows)
        read_log(spark, data.log).write.option("compression", "zstd").parquet(str(data.parquet))
        chosen = [each for each in COMPARISONS if not arguments.cell or each.name in arguments.cell]
        found["cells"] = [_measure(each, data, arguments) for each in chosen]
        if not arguments.cell or "live" in arguments.cell:
            found["live"] = _measure_broker(spark, folder, arguments.rounds)
    _show(found)
    arguments.out.mkdir(exist_ok=True)
    (arguments.out / "spark.json").write_text(json.dumps(found, indent=2))
    spark.stop()


def _measure(comparison: Comparison, data: BenchData, arguments: argparse.Namespace) -> dict[str, Any]:
    ours: list[float] = []
    native: list[float] = []
    for number in range(arguments.rounds + 1):
        turns = [(ours, comparison.ours), (native, comparison.native)]
        for rates, act in turns if number % 2 else reversed(turns):
            started = time.perf_counter()
            act(data)
            rates.append(arguments.rows / (time.perf_counter() - started))
    ratios = [one / other for one, other in zip(ours[1:], native[1:], strict=True)]
    result = {"ours": median(ours[1:]), "native": median(native[1:]), "ratio": median(ratios)}
    console.print(f"  {comparison.name}: {result['ratio']:.2f}x, aim {comparison.aim}")
    return {
        "cell": comparison.name,
        "aim": comparison.aim,
        "lowest": min(ratios),
        "highest": max(ratios),
        **result,
    }


def _measure_broker(spark: Any, folder: Path, rounds: int) -> dict[str, Any]:
    with broker(folder) as addresses:
        rates = [sink_rate(spark, addresses["hermod.pub"], SINK_ROWS) for _ in range(rounds + 1)][1:]
        p50, p99 = Freshness(spark, folder / "data", addresses).measure(WARM_SECONDS, FRESH_SECONDS)
    return {"sink_rows_per_second": median(rates), "sink_range": [min(rates), max(rates)], "p50": p50, "p99": p99}


def _show(found: dict[str, Any]) -> None:
    table = Table(title="rows per second, and the ratio to native Parquet", title_justify="left")
    for heading in ("cell", "Polycast", "native", "ratio", "range", "aim"):
        table.add_column(heading, justify="left" if heading == "cell" else "right")
    for comparison in found["cells"]:
        rates = [f"{comparison[name] / 1e6:.2f} M" for name in ("ours", "native")]
        span = f"{comparison['lowest']:.2f}-{comparison['highest']:.2f}"
        table.add_row(comparison["cell"], *rates, f"{comparison['ratio']:.2f}", span, f"{comparison['aim']:g}")
    console.print(table)
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cell", action="append", help="measure only this one; live: those with a broker")
    parser.add_argument("--scratch", type=Path, default=None, help="folder for temporary files")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    main(parser.parse_args())
