from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import typer

from polycast.cli.flags import AS_JSON
from polycast.errors import UsageError

NAME = "restore"
HELP = """Create a new stream that goes on where the log of this node ends. All nodes must be stopped.

For a stream that is gone, or that lost messages which nodes have applied. Without --yes, verifies the log of this
node and prints where it ends: run it so at every node, and with --yes at the one with the highest sequence. Then
start all nodes again. Those with shorter logs copy the log of that node; their own is moved aside."""
EXAMPLE = "polycast cluster restore --data /var/lib/polycast --cluster nats://127.0.0.1:4222 --node n1"


def run(
    config: Path | None = typer.Option(None, envvar="POLYCAST_CONFIG", help="Configuration file (TOML)."),
    data: str | None = typer.Option(None, help="The data folder of the node.", metavar="DIR"),
    cluster: str | None = typer.Option(None, help="The nats-servers.", metavar="nats://HOST:PORT[,...]"),
    node: str | None = typer.Option(None, help="The name of the node.", metavar="NAME"),
    yes: bool = typer.Option(False, "--yes", help="Create the stream."),
    replace: bool = typer.Option(False, "--replace", help="Remove the stream that is there, with its messages."),
    as_json: bool = AS_JSON,
) -> None:
    from polycast.cluster.restoring import find_end, restore
    from polycast.server import load

    servers = cluster.split(",") if cluster is not None else None
    given = {"log.data": data, "cluster.servers": servers, "cluster.node": node}
    flags: list[tuple[str, Any]] = [(key, value) for key, value in given.items() if value is not None]
    settings = load(config, os.environ, flags).settings
    if not settings.cluster.enabled:
        raise UsageError(
            "no servers are named", "--cluster nats://HOST:PORT, or cluster.servers in the configuration"
        )
    end = asyncio.run(restore(settings, replace) if yes else find_end(settings))
    found = {"offset": end.next, "sequence": end.position.sequence, "chain": end.position.chain, "restored": yes}
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"the log is intact up to offset {end.next:,}: message {end.position.sequence:,} of the stream")
        if yes:
            typer.echo(f"the stream {settings.cluster.stream} goes on from there; start all nodes again")
