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
HELP = """Ask a question of the messages in the log, in Spark's SQL.

The view 'messages' has every message: offset, topic, sequence, time, dialect, format, payload, source. A pattern
in back-ticks is a view of its topics, as in FROM `orders.>` (put the query in single quotes then, for the shell's
sake); --view gives one a name. What is in a JSON payload is reached with Spark's own functions:

  SELECT get_json_object(cast(payload AS string), '$.price') AS price FROM `orders.>`

With --into or --to the query goes on with what comes, until SIGTERM or ctrl-C; asked again, it goes on where it
stopped. --into TOPIC publishes each row that it finds as a JSON object, or just the payload where that is the only
column; totals without an end are published whenever they change. --into 'out.>' takes the columns topic and
payload, and publishes below 'out.'. --to PATH keeps the rows as Parquet files. What a query publishes it does not
read."""
EXAMPLE = 'polycast sql "SELECT topic, count(*) FROM messages GROUP BY topic"'


def run(
    query: str = typer.Argument(help="One statement: SELECT, WITH, VALUES, DESCRIBE or EXPLAIN."),
    data: str = DATA,
    into: str = typer.Option("", help="Publish what it finds to this topic.", metavar="TOPIC"),
    to: str = typer.Option("", help="Keep what it finds as Parquet files in this folder.", metavar="PATH"),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per line; base64 where need be."),
    as_csv: bool = typer.Option(False, "--csv", help="CSV, with the names of the columns in the first line."),
    view: list[str] = typer.Option([], help="A view of some topics (may be repeated).", metavar="NAME=PATTERN"),
    at: str = AT,
    once: bool = typer.Option(False, "--once", help="With --into or --to: end when all that is there is done."),
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
        _answer(statement, Path(data), master, "json" if as_json else "csv" if as_csv else "")


def _check_options(into: str, to: str, as_json: bool, as_csv: bool, once: bool) -> None:
    if into and to:
        raise UsageError("--into publishes and --to keeps: give one of them", "run the query twice for both")
    if as_json and as_csv:
        raise UsageError("--json and --csv are two forms of one answer", "give one of them")
    if (into or to) and (as_json or as_csv):
        raise UsageError("--json and --csv are about what is printed, and this is published or kept")
    if once and not (into or to):
        raise UsageError("--once is for --into and --to", "without them a query ends by itself")
    size, limit = len(into.encode(errors="replace")), Limits().topic_bytes
    if size > limit:
        raise UsageError(f"--into is a topic of {size:,} bytes, and {limit:,} are allowed", "choose a shorter one")


def _answer(statement: Statement, data: Path, master: str, encoder: str) -> None:
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
