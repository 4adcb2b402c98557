"""Flags of several commands."""

import typer

DIALECTS = "simplest, hermod, fanout, nanomsg or ubre"

PUBLISHING_DIALECT = typer.Option("hermod", "--dialect", help=f"The dialect: {DIALECTS}.", metavar="D")
SUBSCRIBING_DIALECT = typer.Option(
    None,
    "--dialect",
    help=f"The dialect: {DIALECTS}; default hermod, or simplest if --at is the address of a listener.",
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
