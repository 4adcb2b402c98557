from __future__ import annotations

from pathlib import Path

import typer

from polycast.cli import stdio
from polycast.cli.log.data_folder import DATA

NAME = "new"
HELP = """Create a token for an identity, and print it or write it to a file that only its owner can read.

The token cannot be shown again: only its digest is stored.

The rights given here add to the rights that the rules of [access] give to that identity."""
EXAMPLE = "polycast token new dashboard --subscribe '>' --admin --dialect ubre --dialect http"


def run(
    name: str = typer.Argument(help="The identity."),
    publish: list[str] = typer.Option([], help="Allow publishing to topics that match.", metavar="PATTERN"),
    subscribe: list[str] = typer.Option(
        [], help="Allow subscribing to this pattern, or to narrower ones.", metavar="PATTERN"
    ),
    serve: list[str] = typer.Option([], help="Allow serving these routes.", metavar="PATTERN"),
    query: list[str] = typer.Option([], help="Allow SQL queries over these topics.", metavar="PATTERN"),
    admin: bool = typer.Option(False, "--admin", help="Allow monitoring and managing the broker."),
    everything: bool = typer.Option(False, "--everything", help="Allow everything."),
    dialect: list[str] = typer.Option([], help="Only in this dialect (may be repeated).", metavar="D"),
    file: Path | None = typer.Option(None, help="Write the token to a new file with mode 600.", metavar="PATH"),
    data: str = DATA,
) -> None:
    from polycast.server.access.tokens import add_token, new_file

    limited = {"publish": publish, "subscribe": subscribe, "serve": serve, "query": query}
    allowed = [f"{action} {pattern}" for action, patterns in limited.items() for pattern in patterns]
    allowed += ["admin"] * admin + ["everything"] * everything
    over = f" over {'+'.join(dialect)}" if dialect else ""
    rules = [f"{name} may {right}{over}" for right in allowed]
    if file is None:
        typer.echo(add_token(Path(data), name, rules))
        stdio.notice(f"this is the token of {name}; it is not shown again")
        return
    with new_file(file) as opened:
        opened.write(add_token(Path(data), name, rules) + "\n")
    stdio.notice(f"the token of {name} is in {file}; it is not shown again")
