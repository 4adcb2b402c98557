from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import typer

NAME = "doctor"
HELP = """Check this machine and the settings, with a hint for each problem.

Checks the settings of --config and of the environment. Risks are marked with !!: a listener open to the network
without TLS, a rule for everybody, files that other accounts can read."""
EXAMPLE = "polycast doctor --json"

MARKS = {"fine": "ok  ", "missing": "--  ", "risky": "!!  ", "wrong": "BAD "}


def run(
    config: Path | None = typer.Option(None, envvar="POLYCAST_CONFIG", help="Configuration file (TOML)."),
    data: str | None = typer.Option(None, help="The data folder.", metavar="DIR"),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per line."),
) -> None:
    from polycast.cli.doctor_checks import run_checks

    bad = False
    for finding in run_checks(config, os.environ, data):
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
