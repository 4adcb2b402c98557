"""Flags of several commands."""

import typer

DIALECTS = "simplest, hermod, fanout, nanomsg or ubre"

PUBLISHING_DIALECT = typer.Option("hermod", "--dialect", help=f"The dialect: {DIALECTS}.", metavar="D")
SUBSCRIBING_DIALECT = typer.Option(
    None,
    "--dialect",
    help=f"The dialect: {DIALECTS}; default simplest, with --from hermod.",
    metavar="D",
)
AT = typer.Option(
    "",
    "--at",
    envvar="POLYCAST_AT",
    help="The broker: a host, or the address of a listener. Default: this machine.",
    metavar="ADDRESS",
)
AS_JSON = typer.Option(False, "--json", help="One JSON object per line.")
