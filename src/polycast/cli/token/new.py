from __future__ import annotations

from pathlib import Path

import typer

from polycast.cli import stdio
from polycast.cli.log.data_folder import DATA

NAME = "new"
HELP = """Make a token for an identity, and print it, or write it to a file that its owner alone can read.

It cannot be shown again: only its digest is kept.

What is allowed here is added to what the rules of [access] allow to an identity of that name."""
EXAMPLE = "polycast token new dashboard --subscribe '>' --admin --dialect ubre --dialect http"


def run(
    name: str = typer.Argument(help="The identity that it is for."),
    publish: list[str] = typer.Option([], help="Let it publish to topics that match this.", metavar="PATTERN"),
    subscribe: list[str] = typer.Option([], help="Let it subscribe to this, or to less.", metavar="PATTERN"),
    serve: list[str] = typer.Option([], help="Let it respond to requests for these routes.", metavar="PATTERN"),
    query: list[str] = typer.Option([], help="Let it query these topics with SQL.", metavar="PATTERN"),
    admin: bool = typer.Option(False, "--admin", help="Let it look at the broker, and manage it."),
    everything: bool = typer.Option(False, "--everything", help="Let it do all that there is."),
    dialect: list[str] = typer.Option([], help="Only in this dialect.", metavar="D"),
    file: Path | None = typer.Option(None, help="Write it to a new file, for its owner alone.", metavar="PATH"),
    data: str = DATA,
) -> None:
    from polycast.server.access.tokens import add_token, new_file

    limited = {"publish": publish, "subscribe": subscribe, "serve": serve, "query": query}
    allowed = [f"{action} {pattern}" for action, patterns in limited.items() for pattern in patterns]
    allowed += ["admin"] * admin + ["everything"] * everything
    over = f" over {'+'.join(dialect)}" if dialect else ""
    rules = [f"{name} may {words}{over}" for words in allowed]
    if file is None:
        typer.echo(add_token(Path(data), name, rules))
        stdio.notice(f"this is the token of {name}; it is not shown again")
        return
    with new_file(file) as opened:
        opened.write(add_token(Path(data), name, rules) + "\n")
    stdio.notice(f"the token of {name} is in {file}; it is not shown again")
