from __future__ import annotations

import json

import typer

from polycast.cli.flags import AS_JSON

NAME = "list"
HELP = "List the pipelines."
EXAMPLE = "polycast pipeline list"


def run(as_json: bool = AS_JSON) -> None:
    from polycast.pipelines import SUMMARIES

    for name, summary in SUMMARIES.items():
        if as_json:
            typer.echo(json.dumps({"name": name, "summary": summary}))
        else:
            typer.echo(f"{name:<12}{summary}")
