from __future__ import annotations

from pathlib import Path

import typer

from polycast.cli import stdio
from polycast.cli.log.data_folder import DATA

NAME = "revoke"
HELP = "Revoke the token of an identity, and close its connections."
EXAMPLE = "polycast token revoke sensors"


def run(name: str = typer.Argument(help="The identity."), data: str = DATA) -> None:
    from polycast.server.access.tokens import revoke_token

    revoke_token(Path(data), name)
    stdio.notice(f"the token of {name} is revoked")
