"""Query results: a table on a terminal, plain columns in a pipe, JSON or CSV; written batch by batch."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import typer

from polycast.cli import stdio
from polycast.pipelines.runtime.json_values import Rows, to_plain, to_rows, to_text
from polycast.text import printable

if TYPE_CHECKING:
    from rich.table import Table

BLOCK_ROWS = 1000
"""Rows that share column widths."""
WIDE = 60
"""Maximum width of a text column; longer cells are cut on a terminal, and not aligned in a pipe."""
LEAST = 8
"""Minimum width of a text column."""
GAP = "  "


def show(names: Sequence[str], batches: Iterable[pa.RecordBatch], encoder: str) -> None:
    """`encoder`: json, csv, or empty for a table."""
    write = {"json": _to_json, "csv": _to_csv}.get(encoder)
    try:
        if write:
            _write(write(names, batches))
        elif sys.stdout.isatty():
            _show_tables(names, batches)
        else:
            _write(_to_lines(names, batches))
    except BrokenPipeError:
        stdio.discard(sys.stdout)


def _write(blocks: Iterable[str]) -> None:
    for block in blocks:
        sys.stdout.buffer.write(block.encode(errors="replace"))
        sys.stdout.buffer.flush()


# -- values ----------------------------------------------------------------------------------------------


def _to_cell(value: Any) -> str:
    """Bytes that are not UTF-8 are shown in hexadecimal."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        text = to_text(value)
        return text if isinstance(text, str) else "0x" + value.hex()
    if isinstance(value, list | dict):
        return msgspec.json.encode(to_plain(value)).decode()
    return str(to_plain(value))


# -- for programs ----------------------------------------------------------------------------------------


def _to_json(names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    encode = msgspec.json.Encoder(decimal_format="number").encode
    for batch in batches:
        rows = to_rows(batch, to_plain)
        yield "".join(encode(dict(zip(names, row, strict=True))).decode() + "\n" for row in rows)


def _to_csv(names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    yield _csv_lines([tuple(names)])
    for batch in batches:
        yield _csv_lines(to_rows(batch, _to_csv_cell))


def _to_csv_cell(value: Any) -> Any:
    plain = to_plain(value)
    if isinstance(plain, dict) and list(plain) == ["$base64"]:
        return plain["$base64"]
    return msgspec.json.encode(plain).decode() if isinstance(plain, list | dict) else plain


def _csv_lines(rows: Rows) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# -- for people ------------------------------------------------------------------------------------------


def _blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Blocks of AT_ONCE rows; the last one may be shorter."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            waiting.append(batch.slice(start, BLOCK_ROWS))
            if sum(each.num_rows for each in waiting) >= BLOCK_ROWS:
                whole = pa.concat_batches(waiting)
                waiting = [whole.slice(BLOCK_ROWS)] if whole.num_rows > BLOCK_ROWS else []
                yield whole.slice(0, BLOCK_ROWS)
    if waiting:
        yield pa.concat_batches(waiting)


def _cells(block: pa.RecordBatch) -> list[list[str]]:
    return [[printable(_to_cell(cell)) for cell in row] for row in to_rows(block, lambda value: value)]


def _numbers(block: pa.RecordBatch) -> list[bool]:
    kinds = [column.type for column in block.columns]
    return [pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_decimal(k) for k in kinds]


def _to_lines(names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """The first rows set the width of the columns."""
    widths: list[int] = []
    for block in _blocks(batches):
        cells, numbers = _cells(block), _numbers(block)
        if not widths:
            widths = [min(WIDE, max(map(len, column))) for column in zip(names, *cells, strict=True)]
            yield _to_line(list(names), widths, numbers)
        yield "".join(_to_line(row, widths, numbers) for row in cells)
    if not widths:
        yield GAP.join(names) + "\n"


def _to_line(cells: list[str], widths: list[int], numbers: list[bool]) -> str:
    shown = (
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, numbers, strict=True)
    )
    return GAP.join(shown).rstrip() + "\n"


def _show_tables(names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
    console = stdio.to_console(sys.stdout)
    total = 0
    for block in _blocks(batches):
        total += block.num_rows
        console.print(_to_table(names, block, console.width))
    if total == 0:
        typer.echo(GAP.join(names))
    stdio.notice("1 row" if total == 1 else f"{total:,} rows")


def _to_table(names: Sequence[str], block: pa.RecordBatch, room: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    cells, numbers = _cells(block), _numbers(block)
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    table = Table(box=None, pad_edge=False)
    for name, number, width in zip(names, numbers, _fit(widths, numbers, room), strict=True):
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(Text(printable(name)), justify=justify, width=width, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _fit(widths: list[int], numbers: list[bool], room: int) -> list[int]:
    """Narrows text columns, the widest first. Number columns are not cut."""
    found = [width if number else min(WIDE, width) for width, number in zip(widths, numbers, strict=True)]
    texts = [index for index, number in enumerate(numbers) if not number]
    while sum(found) + len(GAP) * (len(found) - 1) > room:
        widest = max(texts, key=lambda index: found[index], default=None)
        if widest is None or found[widest] <= LEAST:
            break
        found[widest] -= 1
    return found
