from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polycast.cli.flags import AT
from polycast.cli.log.data_folder import DATA
from polycast.cli.spark_query import MASTER, spark_session
from polycast.errors import UsageError
from polycast.model import Limits

if TYPE_CHECKING:
    from polycast.pipelines.sql.statement import Statement

NAME = "sql"
HELP = """Query the messages in the log with Spark SQL.

The view 'messages' has every message: offset, topic, sequence, time, dialect, format, payload, source. A pattern
in back-ticks is a view of its topics, as in FROM `orders.>` (quote the query with single quotes in a shell);
--view names such a view. Spark's functions read JSON payloads:

  SELECT get_json_object(cast(payload AS string), '$.price') AS price FROM `orders.>`

With --into or --to the query runs as a stream until SIGTERM or ctrl-C; the same command resumes where it stopped.
--into TOPIC publishes each row as a JSON object, or as the payload if that is the only column; running totals are
published on each change. --into 'out.>' publishes the columns topic and payload under 'out.'. --to PATH writes
Parquet files. A query does not read the messages that it publishes."""
EXAMPLE = 'polycast sql "SELECT topic, count(*) FROM messages GROUP BY topic"'


def run(
    query: str = typer.Argument(help="One statement: SELECT, WITH, VALUES, DESCRIBE or EXPLAIN."),
    data: str = DATA,
    into: str = typer.Option("", help="Publish the rows to this topic.", metavar="TOPIC"),
    to: str = typer.Option("", help="Write the rows as Parquet files to this folder.", metavar="PATH"),
    as_json: bool = typer.Option(
        False, "--json", help="One JSON object per line; base64 for bytes that are not text."
    ),
    as_csv: bool = typer.Option(False, "--csv", help="CSV with a header line."),
    view: list[str] = typer.Option([], help="A view of some topics (may be repeated).", metavar="NAME=PATTERN"),
    at: str = AT,
    once: bool = typer.Option(False, "--once", help="With --into or --to: stop at the end of the log."),
    master: str = MASTER,
) -> None:
    from polycast.pipelines.runtime import runner
    from polycast.pipelines.sql.statement import read_statement

    _check_options(into, to, as_json, as_csv, once)
    statement = read_statement(query, view)
    runner.check_spark()
    runner.check_log(Path(data))
    if into or to:
        _follow(statement, into, to, Path(data), at, master, once)
    else:
        _print_result(statement, Path(data), master, "json" if as_json else "csv" if as_csv else "")


def _check_options(into: str, to: str, as_json: bool, as_csv: bool, once: bool) -> None:
    if into and to:
        raise UsageError("--into and --to exclude each other", "run the query twice for both")
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other", "give one of them")
    if (into or to) and (as_json or as_csv):
        raise UsageError("--json and --csv apply to printed results only")
    if once and not (into or to):
        raise UsageError("--once needs --into or --to", "other queries end by themselves")
    size, limit = len(into.encode(errors="replace")), Limits().topic_bytes
    if size > limit:
        raise UsageError(f"--into is a topic of {size:,} bytes, and {limit:,} are allowed", "choose a shorter one")


def _print_result(statement: Statement, data: Path, master: str, encoder: str) -> None:
    from polycast.cli import query_output
    from polycast.pipelines.sql.batch_query import run_query, to_batches

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="polycast: %(message)s")
    with spark_session(NAME, master) as spark:
        rows = run_query(spark, data / "log", statement)
        query_output.show(rows.columns, to_batches(rows, statement.text), encoder)


def _follow(statement: Statement, into: str, to: str, data: Path, at: str, master: str, once: bool) -> None:
    from polycast.cli.pipeline.running import follow
    from polycast.pipelines.runtime import runner
    from polycast.pipelines.sql.stream_query import StreamTarget, check_target, to_pipeline

    target = StreamTarget(into, Path(to) if to else None)
    check_target(target)
    follow(runner.prepare_pipeline(to_pipeline(statement, target), data, at, (), master, once))
