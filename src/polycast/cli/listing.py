"""What the broker says about itself, as rows: a table on a terminal, plain columns in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from polycast.cli.request import ask
from polycast.client.requests import from_body, to_body

ROWS_AT_MOST = 10_000
"""As many as the broker lists at a time."""

Row = dict[str, Any]


def show_listing(what: str, at: str, as_json: bool) -> None:
    """The rows of `polycast/<what>`."""
    answer = from_body(ask(f"polycast/{what}", to_body({"limit": ROWS_AT_MOST}), at))
    rows = answer[what]
    if as_json:
        show_json(rows)
    else:
        show_rows(rows)
    if len(rows) < answer["total"]:
        typer.echo(f"the first {len(rows):,} of {answer['total']:,} {what}", err=True)


def show_json(rows: list[Row]) -> None:
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=False))


def show_rows(rows: list[Row]) -> None:
    if not rows:
        return
    if sys.stdout.isatty():
        _show_table(rows)
    else:
        _show_columns([list(rows[0]), *([_to_cell(value) for value in row.values()] for row in rows)])


def _to_cell(value: Any) -> str:
    """What topics and clients are called is up to others, and must neither break lines nor write on terminals."""
    if isinstance(value, dict):
        return _to_cell(sum(value.values()))
    if isinstance(value, int | float):
        return f"{value:,}" if sys.stdout.isatty() else str(value)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def _show_columns(table: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        typer.echo(line.rstrip())


def _show_table(rows: list[Row]) -> None:
    """Columns of nothing but zeros are left out: terminals are narrow."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = [name for name in rows[0] if any(row[name] for row in rows)]
    table = Table(box=None, pad_edge=False)
    for name in names:
        number = all(isinstance(row[name], int | float | dict) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_to_cell(row[name])) for name in names))
    Console().print(table)
