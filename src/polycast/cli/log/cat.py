from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from polycast.cli import stdio
from polycast.cli.foreign_patterns import read_pattern
from polycast.cli.log.data_folder import DATA, open_log
from polycast.cli.message_output import to_lines
from polycast.model import StartPosition, parse_start

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "cat"
HELP = """Print messages of the log: offset, time, topic, sequence, payload. Bytes that are not text are escaped.

Stops at the end of the log, also while the broker is running."""
EXAMPLE = "polycast log cat --topic 'sensors.>' --from -10m --json"


def run(
    data: str = DATA,
    topic: list[str] = typer.Option([], help="Only topics that match (may be repeated).", metavar="PATTERN"),
    begin: str = typer.Option(
        "earliest",
        "--from",
        help="earliest, an offset, -10m (s, m, h or d) or a time such as 2026-11-15T20:00 (UTC).",
        metavar="POSITION",
    ),
    count: int = typer.Option(0, min=0, help="Stop after this many messages; 0: at the end."),
    as_json: bool = typer.Option(
        False, "--json", help="One JSON object per line; base64 for bytes that are not text."
    ),
) -> None:
    patterns = [read_pattern(text) for text in topic]
    start = parse_start(begin, time.time())
    folder = open_log(data)
    left = count
    try:
        for batch in _batches(folder, start, patterns):
            shown = batch.slice(0, left) if count else batch
            sys.stdout.buffer.write(to_lines(shown, as_json))
            sys.stdout.buffer.flush()
            left -= shown.num_rows
            if count and not left:
                return
    except BrokenPipeError:
        stdio.discard(sys.stdout)


def _batches(folder: Path, start: StartPosition | str, patterns: list[Any]) -> Iterator[pa.RecordBatch]:
    from polycast.log.read.masks import matching
    from polycast.log.read.reader import Reader

    offset = _find(folder, start)
    if offset is None:
        return
    reader = Reader(folder, offset)
    try:
        while (batch := reader.read()) is not None:
            yield matching(batch, patterns) if patterns else batch
    finally:
        reader.close()


def _find(folder: Path, start: StartPosition | str) -> int | None:
    from polycast.log.read.seek import find_time, first_offset

    if isinstance(start, str):
        return None
    if start.seconds is not None:
        return find_time(folder, start.seconds)
    offset = start.sequence if start.offset is None else start.offset
    return first_offset(folder) if offset is None else offset
