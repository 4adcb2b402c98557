from __future__ import annotations

import json
import sys

import typer

NAME = "doctor"
HELP = "Say what works on this machine, and the cure for what does not."
EXAMPLE = "polycast doctor --json"

MARKS = {"fine": "ok  ", "missing": "--  ", "wrong": "BAD "}


def run(
    data: str = typer.Option("polycast-data", envvar="POLYCAST_DATA", help="The data folder.", metavar="DIR"),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per line."),
) -> None:
    from polycast.cli.checks import examine

    bad = False
    for finding in examine(data):
        bad = bad or finding.state == "wrong"
        if as_json:
            typer.echo(json.dumps(finding._asdict()))
        else:
            typer.echo(f"{MARKS[finding.state]}{finding.what}: {finding.found}")
            if finding.cure:
                typer.echo(f"      hint: {finding.cure}")
        sys.stdout.flush()
    if bad:
        raise typer.Exit(1)
