from __future__ import annotations

import json

import typer

from polycast.cli.flags import AS_JSON, AT
from polycast.model import Body

NAME = "stats"
HELP = "Show the broker's counters: totals, then per listener and dialect."
EXAMPLE = "polycast stats --json"


def run(at: str = AT, as_json: bool = AS_JSON) -> None:
    from polycast.cli.request import send_request
    from polycast.cli.row_output import show_rows
    from polycast.client import from_body

    stats = from_body(send_request("polycast/stats", Body(), at))
    if as_json:
        typer.echo(json.dumps(stats, ensure_ascii=False))
        return
    listeners, addresses = stats.pop("listeners"), stats.pop("addresses")
    del stats["limits"]
    show_rows([{"counter": name, "value": value} for name, value in stats.items()])
    for rows in (listeners, addresses):
        typer.echo("")
        show_rows(rows)
