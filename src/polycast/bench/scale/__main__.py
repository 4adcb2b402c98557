"""`make bench-scale`: measures what one broker process takes, prints tables, writes JSON and plots."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from polycast.bench.machine import describe_machine
from polycast.bench.scale.file_limit import SPARE_FILES, raise_file_limit
from polycast.bench.scale.points import ScaleReport
from polycast.bench.scale.scale_plot import draw_scale
from polycast.bench.scale.scale_table import make_scale_table, scale_notes
from polycast.bench.scale.series import SERIES, choose_series, measure_series
from polycast.errors import PolycastError
from polycast.version import VERSION


def run(
    names: Sequence[str] | None, seconds: float, console: Console, sizes: Mapping[str, Sequence[int]] | None = None
) -> ScaleReport:
    """Prints each table when it is complete. `sizes`: instead of those of a series, by its name."""
    chosen = choose_series(names)
    largest = max((size for series in chosen if series.opens_files for size in series.sizes), default=0)
    files = raise_file_limit(largest + SPARE_FILES)
    machine, load = describe_machine(), os.getloadavg()[0]
    reports = []
    for series in chosen:
        with console.status(series.name) as status:
            reports.append(measure_series(series, seconds, files, status.update, sizes))
        console.print(make_scale_table(reports[-1]), "")
    return ScaleReport(machine, VERSION, seconds, (load, os.getloadavg()[0]), files, reports)


def write(report: ScaleReport, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    report.write_json(out / "scale.json")
    draw_scale(report, out / "scale.svg", out / "scale.png")


def main(arguments: argparse.Namespace, console: Console) -> int:
    try:
        report = run(arguments.only, arguments.seconds, console)
        for line in scale_notes(report):
            console.print(line, highlight=False, markup=False)
        write(report, arguments.out)
    except PolycastError as error:
        console.print(f"error: {error}", markup=False)
        return 1
    return int(report.failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench-scale", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help=", ".join(series.name for series in SERIES)
    )
    sys.exit(main(parser.parse_args(), Console(width=None if sys.stdout.isatty() else 140)))
