"""`polycast pipeline`: jobs of Spark over topics."""

from __future__ import annotations

import typer

from polycast.cli.pipeline import describe, listing, running

NAME = "pipeline"
HELP = "Run a pipeline: a Spark job over the topics in the log."
EXAMPLE = "polycast pipeline run archive --once"

COMMANDS = (listing, describe, running)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

for command in COMMANDS:
    app.command(command.NAME, help=command.HELP, epilog=f"Example: {command.EXAMPLE}")(command.run)
