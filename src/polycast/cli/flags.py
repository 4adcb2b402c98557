"""Flags of several commands."""

from pathlib import Path

import typer

from polycast import dialects

BUILT_IN = sorted(file.parent.name for file in Path(dialects.__file__).parent.glob("*/dialect.py"))
"""The names of the built-in dialects. To import the registry would double the time of --help."""
DIALECTS = f"{', '.join(BUILT_IN[:-1])} or {BUILT_IN[-1]}"

PUBLISHING_DIALECT = typer.Option("hermod", "--dialect", help=f"The dialect: {DIALECTS}.", metavar="D")
SUBSCRIBING_DIALECT = typer.Option(
    None,
    "--dialect",
    help=f"The dialect: {DIALECTS}. Default: hermod, or with the address of a listener the dialect of that "
    "default port; at any other port hermod, or simplest if the listener does not reply in hermod.",
    metavar="D",
)
AT = typer.Option(
    "",
    "--at",
    envvar="POLYCAST_AT",
    help="The broker: http://HOST:PORT of its http listener, a host, or the address of a listener; several, "
    "joined by commas, are tried in turn. Default: this machine.",
    metavar="ADDRESS",
)
NO_RECONNECT = typer.Option(False, "--no-reconnect", help="End when the broker closes the connection.")
AS_JSON = typer.Option(False, "--json", help="One JSON object per line.")
