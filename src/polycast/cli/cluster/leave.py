from __future__ import annotations

import json

import typer

from polycast.cli.flags import AS_JSON, AT
from polycast.model import Body

NAME = "leave"
HELP = """Stop a node cleanly: everything that it accepted is applied first.

Its data folder can be served by a single broker (`polycast serve --data DIR` without --cluster), and then belongs
to no cluster any more."""
EXAMPLE = "polycast cluster leave --at tcp://127.0.0.1:8080"


def run(at: str = AT, as_json: bool = AS_JSON) -> None:
    from polycast.cli.request import send_request
    from polycast.client import from_body

    found = from_body(send_request("polycast/cluster/leave", Body(), at))
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        typer.echo(f"the node {found['node']} stops; its data folder is {found['folder']}")
