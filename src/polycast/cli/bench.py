from __future__ import annotations

from pathlib import Path

import typer

NAME = "bench"
HELP = "Compare this broker with the other brokers that are installed: same driver, same load, in turns."
EXAMPLE = "polycast bench --cell 1:100 --peer nats --dialect fanout --rounds 5"


def run(
    cell: list[str] = typer.Option([], help="Only this cell (may be repeated).", metavar="NAME"),
    peer: list[str] = typer.Option([], help="Only this peer (may be repeated).", metavar="NAME"),
    dialect: list[str] = typer.Option(
        [], help="Only this dialect, in every cell (may be repeated).", metavar="NAME"
    ),
    rounds: int = typer.Option(5, min=1, help="Rounds per cell; every broker has one turn per round."),
    seconds: float = typer.Option(1.0, min=0.05, help="Seconds per turn."),
    messages: int | None = typer.Option(
        None,
        min=1,
        help="Messages in the log, instead of the number of each cell.",
        metavar="N",
    ),
    out: Path = typer.Option(
        Path("bench-results"),
        help="Folder for the JSON report, the plot, and logs during the run.",
        metavar="DIR",
    ),
) -> None:
    import sys

    from polycast.bench import run as run_bench
    from polycast.cli import stdio

    console = stdio.to_console(sys.stdout)
    report = run_bench(cell or None, peer or None, rounds, seconds, out, console, dialect or None, messages)
    if report.failed:
        raise typer.Exit(1)
