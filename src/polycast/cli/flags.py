"""Options that several commands share."""

import typer

DIALECTS = "simplest, hermod, fanout, nanomsg or ubre"

PUBLISHING_DIALECT = typer.Option("hermod", "--dialect", help=f"The dialect to speak: {DIALECTS}.", metavar="D")
SUBSCRIBING_DIALECT = typer.Option(
    None,
    "--dialect",
    help=f"The dialect to speak: {DIALECTS}; simplest unless told otherwise, hermod with --from.",
    metavar="D",
)
AT = typer.Option(
    "",
    "--at",
    envvar="POLYCAST_AT",
    help="The broker, if not on this machine: a host, or the address of a port if not at its default.",
    metavar="ADDRESS",
)
AS_JSON = typer.Option(False, "--json", help="One JSON object per line.")
