from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import typer

from polycast.cli import stdio
from polycast.cli.stderr_log import logging_to_stderr
from polycast.errors import UsageError

NAME = "serve"
HELP = "Run a broker. Prints its listeners, then 'ready'; SIGTERM or ctrl-C stops it."
EXAMPLE = "polycast serve --no-log --listen simplest=tcp://127.0.0.1:0 --set limits.connections=100"


def run(
    config: Path | None = typer.Option(None, envvar="POLYCAST_CONFIG", help="Configuration file (TOML)."),
    data: str | None = typer.Option(None, help="The data folder.", metavar="DIR"),
    listen: list[str] = typer.Option(
        [], help="Open this listener; others only if named too.", metavar="NAME=ADDRESS"
    ),
    connect: list[str] = typer.Option([], help="Connect to a remote socket (nanomsg).", metavar="NAME=ADDRESS"),
    no_log: bool = typer.Option(False, "--no-log", help="Run without a log."),
    peer: list[str] = typer.Option([], help="Link to another broker (simplest).", metavar="HOST:PORT"),
    forward: bool = typer.Option(False, "--forward", help="Forward messages between links, under //fwd/."),
    announce: str | None = typer.Option(
        None, help="Publish this broker's address to linked brokers.", metavar="ORG/NAME[=HOST:PORT]"
    ),
    discover: list[str] = typer.Option([], help="Link to brokers announced in ORG.", metavar="ORG"),
    set_: list[str] = typer.Option([], "--set", help="Any other setting.", metavar="KEY=VALUE"),
    check: bool = typer.Option(False, "--check", help="Print the effective configuration and exit."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log every connection."),
    log_format: str | None = typer.Option(None, help="Format of the log lines on stderr.", metavar="text|json"),
) -> None:
    from polycast import console
    from polycast.server import load, serve
    from polycast.server.exposure import find_warnings

    flags: list[tuple[str, Any]] = [split(text, "--listen", "listen.") for text in listen]
    flags += [split(text, "--connect", "connect.") for text in connect]
    flags += [split(text, "--set") for text in set_]
    given = {
        "log.data": data,
        "log.enabled": False if no_log else None,
        "simplest.peers": peer or None,
        "simplest.forward": forward or None,
        "simplest.announce": announce,
        "simplest.discover": discover or None,
        "stderr.format": log_format,
    }
    flags += [(key, value) for key, value in given.items() if value is not None]
    read = partial(load, config, os.environ, flags)
    loaded = read()
    if check:
        typer.echo(loaded.to_toml(), nl=False)
        for warning in find_warnings(loaded.settings):
            stdio.notice(f"{logging.getLevelName(warning.level).lower()}: {warning}")
        return
    with logging_to_stderr(loaded.settings.stderr.format, logging.DEBUG if verbose else logging.INFO):
        serve(loaded.settings, say=_print_line, pages=console.pages(), read=lambda: read().settings)


def split(text: str, flag: str, prefix: str = "") -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"{flag} {text}: expected {'NAME=ADDRESS' if prefix else 'KEY=VALUE'}")
    return prefix + key, value


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
