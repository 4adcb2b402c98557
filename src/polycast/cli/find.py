from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polycast.cli import stdio
from polycast.cli.foreign_patterns import read_pattern
from polycast.cli.log.data_folder import DATA, open_log
from polycast.cli.message_output import to_lines
from polycast.cli.spark_query import MASTER, POSITIONS, parse_position, spark_session
from polycast.errors import UsageError
from polycast.model import Everything, StartPosition

if TYPE_CHECKING:
    from polycast.log.read.query import Condition, RowFilter
    from polycast.pipelines.index.search import SearchTerms
    from polycast.pipelines.runtime.worker_tasks import WorkerTask

NAME = "find"
HELP = """Find messages by a text in the payload, by a field of a JSON payload, or both.

A field is a path such as order.id. Strings compare by value, other values by their JSON text: 1.0 is not 1. With
an index (polycast pipeline run index) most of the log is not read. Topics under polycast/ are searched only if
--topic names them.

Prints messages as polycast log cat does. As with grep, the exit code is 1 if no message matches."""
EXAMPLE = "polycast find --field order.customer=4711 --topic 'orders.>' --from -1d"

NOTHING_FOUND = 1


def run(
    text: str = typer.Argument("", help="The text; optional with --field.", metavar="[TEXT]"),
    topic: list[str] = typer.Option([], help="Only topics that match (may be repeated).", metavar="PATTERN"),
    field: list[str] = typer.Option(
        [], help="A field and its value, as order.id=17 (may be repeated: all must match).", metavar="NAME=VALUE"
    ),
    begin: str = typer.Option("", "--from", help=f"Start: {POSITIONS}.", metavar="POSITION"),
    end: str = typer.Option("", "--to", help="End, exclusive: the same.", metavar="POSITION"),
    source: str = typer.Option("log", "--in", help="What to search: log or lake.", metavar="log|lake"),
    limit: int = typer.Option(100, min=0, help="Maximum number of messages; 0: unlimited."),
    scan: bool = typer.Option(False, "--scan", help="Read every message, without the index."),
    data: str = DATA,
    as_json: bool = typer.Option(
        False, "--json", help="One JSON object per line; base64 for payloads that are not text."
    ),
    master: str = MASTER,
) -> None:
    from polycast.pipelines.runtime import runner

    runner.check_spark()
    terms = to_terms(text, field)
    wanted = to_row_filter(topic, begin, end)
    parts = to_read_tasks(source, data, wanted)
    index = None if scan else to_index(data)
    with spark_session(NAME, master) as spark:
        from polycast.pipelines.index.search import search_all

        found = 0
        try:
            for batch in search_all(spark, parts, terms, index, limit):
                sys.stdout.buffer.write(to_lines(batch, as_json))
                sys.stdout.buffer.flush()
                found += batch.num_rows
        except BrokenPipeError:
            stdio.discard(sys.stdout)
    _conclude(found, limit)


def to_terms(text: str, fields: list[str]) -> SearchTerms:
    from polycast.pipelines.index.search import SearchTerms, to_field

    if not text and not fields:
        raise UsageError("nothing to search for", "give a text, or --field NAME=VALUE")
    return SearchTerms(os.fsencode(text), tuple(map(to_field, fields)))


def to_row_filter(topics: list[str], begin: str, end: str) -> RowFilter:
    from polycast.log.read.query import RowFilter

    patterns = tuple(map(read_pattern, topics)) or (Everything(),)
    conditions = [_to_condition("--from", begin, ">="), _to_condition("--to", end, "<")]
    return RowFilter(patterns, tuple(condition for condition in conditions if condition))


def _to_condition(flag: str, text: str, test: str) -> Condition | None:
    from polycast.log.read.query import Condition
    from polycast.log.times import MICROS

    if not text:
        return None
    found: StartPosition = parse_position(flag, text)
    if found.seconds is not None:
        return Condition("time", test, round(found.seconds * MICROS))
    return Condition("offset", test, found.sequence or 0)


def to_read_tasks(source: str, data: str, wanted: RowFilter) -> list[WorkerTask]:
    from polycast.pipelines.index.search import COLUMNS
    from polycast.pipelines.runtime.worker_tasks import lake_tasks, log_tasks

    if source not in ("log", "lake"):
        raise UsageError(f"--in {source} is not searchable", "--in log or --in lake")
    if source == "lake":
        return lake_tasks(Path(data).absolute() / "lake", wanted, COLUMNS)
    return log_tasks(open_log(data).absolute(), wanted, COLUMNS)


def to_index(data: str) -> Path | None:
    """None: there is no index of this log."""
    from polycast.pipelines.index.blocks import UNKNOWN, index_of

    folder = index_of(Path(data))
    return folder if folder.is_dir() and folder.name != UNKNOWN else None


def _conclude(found: int, limit: int) -> None:
    if not found:
        stdio.notice("no message found")
        raise typer.Exit(NOTHING_FOUND)
    if limit and found >= limit:
        stdio.notice(f"the first {found:,} messages; --limit {limit * 10} shows more, --limit 0 all")
