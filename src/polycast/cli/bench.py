from __future__ import annotations

from pathlib import Path

import typer

NAME = "bench"
HELP = "Measure this broker beside the peers that are installed: same driver, same run."
EXAMPLE = "polycast bench --cell 1:100 --peer nats --dialect fanout --rounds 5"


def run(
    cell: list[str] = typer.Option([], help="Only this cell (may be repeated).", metavar="NAME"),
    peer: list[str] = typer.Option([], help="Only this peer (may be repeated).", metavar="NAME"),
    dialect: list[str] = typer.Option(
        [], help="Only this dialect, in every cell (may be repeated).", metavar="NAME"
    ),
    rounds: int = typer.Option(5, min=1, help="How often everyone has a turn at each cell."),
    seconds: float = typer.Option(1.0, min=0.05, help="How long a turn takes."),
    out: Path = typer.Option(Path("bench-results"), help="Where the table's JSON and the plot go.", metavar="DIR"),
) -> None:
    from rich.console import Console

    from polycast.bench import run as run_bench

    report = run_bench(cell or None, peer or None, rounds, seconds, out, Console(), dialect or None)
    if report.failed:
        raise typer.Exit(1)
