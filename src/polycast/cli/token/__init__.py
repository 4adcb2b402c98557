"""`polycast token`: who may come from elsewhere, with the broker running or stopped."""

from __future__ import annotations

import typer

from polycast.cli.token import listing, new, revoke

NAME = "token"
HELP = "Hand out tokens, and take them back. A running broker notices at once."
EXAMPLE = "polycast token new sensors --publish 'sensors.>'"

COMMANDS = (new, listing, revoke)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

for command in COMMANDS:
    app.command(command.NAME, help=command.HELP, epilog=f"Example: {command.EXAMPLE}")(command.run)
