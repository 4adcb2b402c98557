"""Options that several commands share."""

import typer

DIALECT = typer.Option("simplest", "--dialect", help="The dialect to speak: simplest or fanout.", metavar="D")
AT = typer.Option(
    "", "--at", envvar="POLYCAST_AT", help="The broker, if not at the default address.", metavar="ADDRESS"
)
