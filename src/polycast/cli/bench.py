from __future__ import annotations

from pathlib import Path

import typer

NAME = "bench"
HELP = "Put the same load on this broker and on others found on this machine, turn by turn, and compare."
EXAMPLE = "polycast bench --cell 1:100 --peer nats --dialect fanout --rounds 5"


def run(
    cell: list[str] = typer.Option([], help="Only this cell (may be repeated).", metavar="NAME"),
    peer: list[str] = typer.Option([], help="Only this peer (may be repeated).", metavar="NAME"),
    dialect: list[str] = typer.Option(
        [], help="Only this dialect, in every cell (may be repeated).", metavar="NAME"
    ),
    rounds: int = typer.Option(5, min=1, help="How often everyone has a turn at each cell."),
    seconds: float = typer.Option(1.0, min=0.05, help="How long a turn takes."),
    messages: int | None = typer.Option(
        None,
        min=1,
        help="How many messages lie in the log; without, each cell has its own number.",
        metavar="N",
    ),
    out: Path = typer.Option(
        Path("bench-results"),
        help="Where the tables' JSON and the plot go, and logs while they are needed.",
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
