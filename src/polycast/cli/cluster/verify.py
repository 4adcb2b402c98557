from __future__ import annotations

import json

import typer

from polycast.cli.flags import AS_JSON, AT
from polycast.model import Body

NAME = "verify"
HELP = """Compare the tables of all nodes that can be reached.

Exits with 1 if they differ, and names the first offset where they do. Names the nodes that are wrong if a majority
has another table, or if messages are missing; otherwise all of them."""
EXAMPLE = "polycast cluster verify"

SECONDS = 3600.0
FINDINGS = {
    "majority": "different from offset {offset} on: {odd}",
    "missing": "messages are missing or unreadable from offset {offset} on: {odd}",
    "undecided": "{odd} differ from offset {offset} on, and no majority has one of these tables",
}


def run(at: str = AT, as_json: bool = AS_JSON) -> None:
    from polycast.cli.request import send_request
    from polycast.client import from_body

    found = from_body(send_request("polycast/cluster/verify", Body(), at, SECONDS))
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        _show(found)
    if "differs" in found:
        raise typer.Exit(1)


def _show(found: dict[str, object]) -> None:
    nodes = ", ".join(found["nodes"])  # type: ignore[arg-type]
    if "differs" in found:
        odd = ", ".join(found["different"])  # type: ignore[arg-type]
        finding = FINDINGS[str(found["reason"])].format(odd=odd, offset=found["differs"])
        typer.echo(f"{finding}; compared: {nodes}")
    else:
        typer.echo(f"the same table, offsets {found['first']} to {found['next']}: {nodes}")
