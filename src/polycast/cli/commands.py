"""All commands together."""

from __future__ import annotations

import typer

from polycast import __version__
from polycast.cli import (
    bench,
    cluster,
    completion,
    connections,
    doctor,
    estimate,
    find,
    log,
    pipeline,
    pub,
    reply,
    request,
    serve,
    sql,
    stats,
    sub,
    token,
    topics,
    up,
    why,
)
from polycast.cli.group import add_commands, add_group

app = typer.Typer(
    name="polycast",
    help="A columnar message broker: five pub/sub protocols, one log that is a table.",
    epilog="Example: polycast serve --no-log",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = (
    up,
    serve,
    pub,
    sub,
    request,
    reply,
    topics,
    connections,
    stats,
    sql,
    find,
    why,
    estimate,
    doctor,
    bench,
    completion,
)

GROUPS = (log, pipeline, cluster, token)

add_commands(app, COMMANDS)
for group in GROUPS:
    add_group(app, group)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polycast {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    pass
