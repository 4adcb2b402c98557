from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from polycast.cli.log.data_folder import DATA, open_log
from polycast.cli.log.progress import progress

if TYPE_CHECKING:
    from polycast.log.repair.verify import LogFinding

NAME = "verify"
HELP = """Read the whole log and verify it: checksums, digests, the chain of checksums, and offsets.

Each damage is one line with the file, the position and the offsets, and the exit code is 1. Recorded gaps and
unfinished groups are notes."""
EXAMPLE = "polycast log verify --data /var/lib/polycast"

SHOWN_LIMIT = 20


def run(
    data: str = DATA,
    as_json: bool = typer.Option(False, "--json", help="One JSON object per line; the last has the totals."),
) -> None:
    from polycast.log.files.state import is_running
    from polycast.log.repair.verify import LogFinding, verify

    folder = open_log(data)
    show = _show_json if as_json else _show_line
    damage = notes = rows = 0
    with progress() as bar:
        for report in verify(folder, is_running(folder)):
            if not isinstance(report, LogFinding):
                rows = report.rows
                bar.show("verifying", report.done, report.total)
                continue
            damage, notes = damage + (not report.note), notes + report.note
            if as_json or damage + notes <= SHOWN_LIMIT:
                show(report)
    if as_json:
        typer.echo(json.dumps({"messages": rows, "damage": damage, "notes": notes}))
    else:
        typer.echo(_summary(rows, damage, notes))
    if damage:
        raise typer.Exit(1)


def _show_line(finding: LogFinding) -> None:
    where = ""
    if finding.first is not None:
        until = "on" if finding.next is None else f"to {finding.next - 1:,}"
        where = f" (offsets from {finding.first:,} {until})"
    typer.echo(f"{'note' if finding.note else 'damage'}: {finding.what}{where}")


def _show_json(finding: LogFinding) -> None:
    typer.echo(json.dumps(finding._asdict(), ensure_ascii=False))


def _summary(rows: int, damage: int, notes: int) -> str:
    more = damage + notes - SHOWN_LIMIT
    words = f"and {more:,} more; " if more > 0 else ""
    return f"{words}{rows:,} messages are intact; damage: {damage:,}, notes: {notes:,}"
