"""Rows on stdout: a table on a terminal, plain columns in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from polycast.cli import stdio
from polycast.cli.request import send_request
from polycast.dialects.client_requests import from_body, to_body
from polycast.text import printable

if TYPE_CHECKING:
    from rich.table import Table

ROW_LIMIT = 10_000
"""The broker's own limit per listing."""

TEXT_COLUMNS = 16
"""Minimum width of a text column."""
GAP = "  "

Row = dict[str, Any]


def show_listing(what: str, at: str, as_json: bool, fields: Row | None = None) -> None:
    """Requests `polycast/<what>` and shows the response. `fields` are added to the request, and select rows."""
    response = from_body(send_request(f"polycast/{what}", to_body({"limit": ROW_LIMIT} | (fields or {})), at))
    rows = response[what]
    if as_json:
        show_json(rows)
    else:
        show_rows(rows)
    if len(rows) == ROW_LIMIT or (not fields and len(rows) < response["total"]):
        stdio.notice(f"the first {len(rows):,} of {response['total']:,} {what}")


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
    """Topics and client names are foreign text: made printable."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return _to_cell(sum(value.values()))
    if isinstance(value, int | float):
        return f"{value:,}" if sys.stdout.isatty() else str(value)
    return printable(str(value))


def _show_columns(table: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        line = GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        typer.echo(line.rstrip())


def _show_table(rows: list[Row]) -> None:
    """Omits columns that are all zero: terminals are narrow."""
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    cells = [[_to_cell(row[name]) for name in names] for row in rows]
    heads = [name.replace("_", " ") for name in names]
    numbers = [all(isinstance(row[name], int | float | dict) for row in rows) for name in names]
    console = stdio.to_console(sys.stdout)
    if _least_width(heads, cells, numbers) <= console.width:
        console.print(_to_table(heads, cells, numbers))
    else:
        _show_blocks(heads, cells)


def _least_width(heads: list[str], cells: list[list[str]], numbers: list[bool]) -> int:
    """The minimum width of a readable table: numbers are not folded, texts may be."""
    columns = zip(heads, zip(*cells, strict=True), numbers, strict=True)
    widths = [
        max(*map(len, head.split()), *(len(text) if number else min(len(text), TEXT_COLUMNS) for text in column))
        for head, column, number in columns
    ]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _to_table(heads: list[str], cells: list[list[str]], numbers: list[bool]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for head, number in zip(heads, numbers, strict=True):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _show_blocks(heads: list[str], cells: list[list[str]]) -> None:
    """One line per value, for narrow terminals."""
    width = max(map(len, heads))
    for row in cells:
        for head, cell in zip(heads, row, strict=True):
            typer.echo(f"{head.ljust(width)}{GAP}{cell}")
        typer.echo("")
