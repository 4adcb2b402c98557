from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from polycast.cli import stdio
from polycast.cli.stderr_log import logging_to_stderr
from polycast.errors import StartError, UsageError

if TYPE_CHECKING:
    from polycast.server import Loaded

NAME = "serve"
HELP = """Run a broker. Prints its listeners, then 'ready'; SIGTERM or ctrl-C stops it.

--check finds what a start would refuse: settings, certificates and keys, tokens, and a data folder that cannot be
used. It changes nothing, and a broker that runs with the same configuration is not disturbed."""
EXAMPLE = "polycast serve --no-log --listen simplest=tcp://127.0.0.1:0 --set limits.connections=100"


def run(
    config: Path | None = typer.Option(None, envvar="POLYCAST_CONFIG", help="Configuration file (TOML)."),
    data: str | None = typer.Option(None, help="The data folder.", metavar="DIR"),
    listen: list[str] = typer.Option(
        [], help="Open this listener; others only if named too.", metavar="NAME=ADDRESS"
    ),
    connect: list[str] = typer.Option([], help="Connect to a remote socket (nanomsg).", metavar="NAME=ADDRESS"),
    no_log: bool = typer.Option(False, "--no-log", help="Run without a log."),
    cluster: str | None = typer.Option(
        None, help="Be a node of the cluster on these nats-servers.", metavar="nats://HOST:PORT[,...]"
    ),
    node: str | None = typer.Option(None, help="The name of this node.", metavar="NAME"),
    peer: list[str] = typer.Option([], help="Link to another broker (simplest).", metavar="HOST:PORT"),
    forward: bool = typer.Option(False, "--forward", help="Forward messages between links, under //fwd/."),
    announce: str | None = typer.Option(
        None, help="Publish this broker's address to linked brokers.", metavar="ORG/NAME[=HOST:PORT]"
    ),
    discover: list[str] = typer.Option([], help="Link to brokers announced in ORG.", metavar="ORG"),
    set_: list[str] = typer.Option([], "--set", help="Any other setting.", metavar="KEY=VALUE"),
    check: bool = typer.Option(
        False, "--check", help="Check the configuration and all files it names, print it, and exit."
    ),
    check_ports: bool = typer.Option(
        False, "--check-ports", help="The same; the ports must be free, and the data folder unused."
    ),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log every connection."),
    log_format: str | None = typer.Option(None, help="Format of the log lines on stderr.", metavar="text|json"),
) -> None:
    from polycast import console
    from polycast.server import load, serve

    flags: list[tuple[str, Any]] = [split(text, "--listen", "listen.") for text in listen]
    flags += [split(text, "--connect", "connect.") for text in connect]
    flags += [split(text, "--set") for text in set_]
    given = {
        "log.data": data,
        "log.enabled": False if no_log else None,
        "cluster.servers": cluster.split(",") if cluster is not None else None,
        "cluster.node": node,
        "simplest.peers": peer or None,
        "simplest.forward": forward or None,
        "simplest.announce": announce,
        "simplest.discover": discover or None,
        "stderr.format": log_format,
    }
    flags += [(key, value) for key, value in given.items() if value is not None]
    read = partial(load, config, os.environ, flags)
    loaded = read()
    if check or check_ports:
        _check(loaded, check_ports)
        return
    with logging_to_stderr(loaded.settings.stderr.format, logging.DEBUG if verbose else logging.INFO):
        start: dict[str, Any] = {"start": _node_start()} if loaded.settings.cluster.enabled else {}
        serve(loaded.settings, show=_print_line, pages=console.pages(), read=lambda: read().settings, **start)


def _node_start() -> Any:
    """Only a node needs the client of NATS."""
    try:
        from polycast.cluster.node import run as run_node
    except ModuleNotFoundError as error:
        hint = "pip install 'polycast[cluster]'"
        raise StartError(f"a cluster needs the package {error.name}", hint) from error
    return run_node


def _check(loaded: Loaded, ports: bool) -> None:
    """Changes nothing: a broker that runs with this data folder and these ports is not disturbed."""
    from polycast.server import start_check
    from polycast.server.exposure import find_warnings

    settings = loaded.settings
    start_check.check(settings)
    used = settings.log.enabled and start_check.check_folder(settings.log)
    if ports:
        start_check.check_ports(settings)
        if used:
            hint = "--data DIR takes another folder; SIGHUP makes a broker read its configuration again"
            raise StartError(f"a broker runs with the data folder {settings.log.data}", hint)
    typer.echo(loaded.to_toml(), nl=False)
    for warning in find_warnings(settings):
        stdio.notice(f"{logging.getLevelName(warning.level).lower()}: {warning}")


def split(text: str, flag: str, prefix: str = "") -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        syntax, example = (
            ("NAME=ADDRESS", "http=tcp://127.0.0.1:8080") if prefix else ("KEY=VALUE", "limits.topics=1000")
        )
        raise UsageError(f"{flag} {text}: expected {syntax}", f"as in {flag} {example}")
    return prefix + key, value


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
