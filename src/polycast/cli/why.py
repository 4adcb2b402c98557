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
HELP = """Tell who should have received the message at an offset, and why; and who lost messages near it.

It is found in what the broker said about subscriptions (polycast/events/), which is in the log. A subscription
that began later and asked for the past counts as well, as a replay. Subscriptions from before the first event
are not known; where that matters, it says so."""
EXAMPLE = "polycast why 1234 --json"

SHOWN = ("connection", "dialect", "address", "pattern", "kind", "how", "since_offset", "since")


def run(
    offset: str = typer.Argument(help="The message's offset, as polycast log cat shows it.", metavar="OFFSET"),
    data: str = DATA,
    as_json: bool = typer.Option(False, "--json", help="The answer as one JSON object."),
    master: str = MASTER,
) -> None:
    from polycast.pipelines.runtime import runner

    number = parse_offset(offset)
    runner.check_spark()
    folder = open_log(data)
    from polycast.pipelines.deliveries.receivers import explain_delivery, find_message

    asked = find_message(folder, number)
    with spark_session(NAME, master) as spark:
        answer = to_shown(explain_delivery(spark, folder, asked))
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False))
    else:
        _show(answer)


def parse_offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        hint = "offsets are whole numbers from 0 on; polycast log cat shows them"
        raise UsageError(f"{text!r} is no offset", hint)
    return int(text)


def to_shown(answer: dict[str, Any]) -> dict[str, Any]:
    """With times as people read them."""
    shown = {"time" if name == "time_micros" else name: value for name, value in answer.items()}
    shown["time"] = to_time(answer["time_micros"])
    shown["receivers"] = [
        {name: value for name, value in row.items() if name != "since_micros"}
        | {"since": to_time(row["since_micros"])}
        for row in answer["receivers"]
    ]
    return shown


def _show(answer: dict[str, Any]) -> None:
    from polycast.cli.row_output import show_rows

    what = f"offset {answer['offset']:,} {answer['time']} {answer['topic']} {answer['sequence']}"
    typer.echo(printable(f"{what}: {answer['bytes']:,} bytes from {answer['source']}"))
    show_rows([{name: row[name] for name in SHOWN} for row in answer["receivers"]])
    if not answer["receivers"]:
        typer.echo("nobody should have received it")
    for row in answer["silent"]:
        typer.echo(printable(f"silent: {row['connection']}: {row['reason']}"))
    for row in answer["drops"]:
        where = f"between offsets {row['first']:,} and {row['next'] - 1:,}"
        typer.echo(printable(f"dropped: {row['connection']} lost {row['messages']:,} messages {where}"))
    if answer["note"]:
        stdio.notice(f"note: {answer['note']}")
