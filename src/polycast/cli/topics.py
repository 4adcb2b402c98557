from __future__ import annotations

from polycast.cli.flags import AS_JSON, AT

NAME = "topics"
HELP = "List the topics, with the next sequence and the number of subscribers of each."
EXAMPLE = "polycast topics --json"


def run(at: str = AT, as_json: bool = AS_JSON) -> None:
    from polycast.cli.row_output import show_listing

    show_listing("topics", at, as_json)
