from __future__ import annotations

from polycast.cli.flags import AS_JSON, AT

NAME = "connections"
HELP = "List the connections of the broker, with the bytes queued for each."
EXAMPLE = "polycast connections --at broker.example"


def run(at: str = AT, as_json: bool = AS_JSON) -> None:
    from polycast.cli.row_output import show_listing

    show_listing("connections", at, as_json)
