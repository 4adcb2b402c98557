from __future__ import annotations

import json
from typing import Any

import typer

from polycast.cli import stdio
from polycast.cli.log.data_folder import DATA, open_log
from polycast.cli.spark_query import MASTER, spark_session, to_time
from polycast.errors import UsageError
from polycast.text import printable

NAME = "why"
HELP = """Show the subscriptions that should have received the message at an offset, and drops near it.

Uses the broker's events (polycast/events/) in the log. Later subscriptions with a replay count too. Subscriptions
from before the first event are unknown; a note says so where it matters."""
EXAMPLE = "polycast why 1234 --json"

SHOWN = ("connection", "dialect", "address", "pattern", "kind", "how", "since_offset", "since")


def run(
    offset: str = typer.Argument(help="The message's offset, as polycast log cat shows it.", metavar="OFFSET"),
    data: str = DATA,
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
    master: str = MASTER,
) -> None:
    from polycast.pipelines.runtime import runner

    number = parse_offset(offset)
    runner.check_spark()
    folder = open_log(data)
    from polycast.pipelines.deliveries.receivers import explain_delivery, find_message

    message = find_message(folder, number)
    with spark_session(NAME, master) as spark:
        delivery = to_shown(explain_delivery(spark, folder, message))
    if as_json:
        typer.echo(json.dumps(delivery, ensure_ascii=False))
    else:
        _show(delivery)


def parse_offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        hint = "offsets are whole numbers from 0; polycast log cat shows them"
        raise UsageError(f"{text!r} is not an offset", hint)
    return int(text)


def to_shown(delivery: dict[str, Any]) -> dict[str, Any]:
    """Converts times to text."""
    shown = {"time" if name == "time_micros" else name: value for name, value in delivery.items()}
    shown["time"] = to_time(delivery["time_micros"])
    shown["receivers"] = [
        {name: value for name, value in row.items() if name != "since_micros"}
        | {"since": to_time(row["since_micros"])}
        for row in delivery["receivers"]
    ]
    return shown


def _show(delivery: dict[str, Any]) -> None:
    from polycast.cli.row_output import show_rows

    what = f"offset {delivery['offset']:,} {delivery['time']} {delivery['topic']} {delivery['sequence']}"
    typer.echo(printable(f"{what}: {delivery['bytes']:,} bytes from {delivery['source']}"))
    show_rows([{name: row[name] for name in SHOWN} for row in delivery["receivers"]])
    if not delivery["receivers"]:
        typer.echo("no subscription matched")
    for row in delivery["silent"]:
        typer.echo(printable(f"silent: {row['connection']}: {row['reason']}"))
    for row in delivery["drops"]:
        where = f"between offsets {row['first']:,} and {row['next'] - 1:,}"
        typer.echo(printable(f"dropped: {row['connection']} lost {row['messages']:,} messages {where}"))
    if delivery["note"]:
        stdio.notice(f"note: {delivery['note']}")
