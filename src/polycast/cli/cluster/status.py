from __future__ import annotations

import json

import typer

from polycast.cli.flags import AS_JSON, AT
from polycast.model import Body

NAME = "status"
HELP = """Show the stream and the nodes of a cluster, as one of the nodes sees them.

Nodes with equal sequences have equal offsets and chains."""
EXAMPLE = "polycast cluster status --json"


def run(at: str = AT, as_json: bool = AS_JSON) -> None:
    from polycast.cli.request import send_request
    from polycast.cli.row_output import show_rows
    from polycast.client import from_body

    found = from_body(send_request("polycast/cluster", Body(), at))
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    stream = found["stream"]
    if error := stream.get("error"):
        typer.echo(f"stream {stream['name']}: {error}")
    else:
        text = f"messages {stream['first']} to {stream['last']}, leader {stream['leader']}"
        typer.echo(f"stream {stream['name']}: {text}")
    show_rows(found["nodes"])
