from __future__ import annotations

import typer

from polycast.cli.flags import AS_JSON, AT

NAME = "topics"
HELP = """List the topics, with the next sequence and the number of subscribers of each.

With a pattern: those that match, the one with the latest message first."""
EXAMPLE = "polycast topics 'sensors.>' --json"


def run(
    pattern: str | None = typer.Argument(None, help="Only topics that match.", metavar="[PATTERN]"),
    at: str = AT,
    as_json: bool = AS_JSON,
) -> None:
    from polycast.cli.foreign_patterns import read_pattern
    from polycast.cli.row_output import show_listing

    show_listing("topics", at, as_json, {} if pattern is None else {"pattern": str(read_pattern(pattern))})
