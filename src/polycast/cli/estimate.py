from __future__ import annotations

import json
import time
from typing import Any

import typer

from polycast.cli.foreign_patterns import read_pattern
from polycast.cli.log.data_folder import DATA, open_log
from polycast.cli.spark_query import MASTER, TIMES, parse_time, spark_session, to_time

NAME = "estimate"
HELP = """Estimate the messages and the rate of a subscription, from the log.

Bytes are payload bytes. Rates are averages over the time that the log covers."""
EXAMPLE = "polycast estimate 'sensors.>' --since -1d"


def run(
    pattern: str = typer.Argument(help="The pattern, as for polycast sub.", metavar="PATTERN"),
    data: str = DATA,
    since: str = typer.Option("-7d", help=f"Start: {TIMES}.", metavar="TIME"),
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
    master: str = MASTER,
) -> None:
    from polycast.pipelines.runtime import runner

    wanted = read_pattern(pattern)
    begin = parse_time("--since", since)
    runner.check_spark()
    folder = open_log(data)
    with spark_session(NAME, master) as spark:
        from polycast.pipelines.deliveries.volume import estimate

        found = to_shown(estimate(spark, folder, wanted, begin, time.time()))
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        _show(found)


def to_shown(found: dict[str, Any]) -> dict[str, Any]:
    """Converts times to text."""
    from polycast.log.times import MICROS

    peak = found["peak_minute"]
    at = None if peak is None else to_time(peak * MICROS)
    times = {"since": to_time(found["since"] * MICROS), "peak_minute": at}
    rates = {name: round(value, 3) for name, value in found.items() if isinstance(value, float)}
    return found | rates | times


def _show(found: dict[str, Any]) -> None:
    from polycast.cli.row_output import show_rows

    total = f"{found['messages']:,} messages, {found['bytes']:,} bytes, {found['topics']:,} topics"
    typer.echo(f"{found['pattern']} since {found['since']}: {total}")
    if not found["messages"]:
        return
    for what, name in (("on average", ""), (f"in the minute {found['peak_minute']}", "peak_")):
        messages, size = found[f"{name}messages_per_second"], found[f"{name}bytes_per_second"]
        typer.echo(f"{messages:,.1f} messages/s, {size:,.0f} bytes/s {what}")
    show_rows(found["top"])
