from __future__ import annotations

from pathlib import Path

import msgspec
import typer

from polycast.cli.flags import AS_JSON
from polycast.cli.log.data_folder import DATA

NAME = "list"
HELP = "List the tokens with identity, creation time and rules."
EXAMPLE = "polycast token list --data polycast-data"


def run(data: str = DATA, as_json: bool = AS_JSON) -> None:
    from polycast.cli.row_output import show_rows
    from polycast.server.access.tokens import FILE, read_tokens

    tokens = read_tokens(Path(data) / FILE)
    if as_json:
        for token in tokens:
            row = {"name": token.name, "created": token.created, "rules": token.rules}
            typer.echo(msgspec.json.encode(row).decode())
        return
    show_rows(
        [{"name": token.name, "created": token.created, "rules": "; ".join(token.rules)} for token in tokens]
    )
