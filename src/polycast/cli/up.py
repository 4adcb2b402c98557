from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polycast.cli import stdio
from polycast.cli.serve import split
from polycast.errors import UsageError

if TYPE_CHECKING:
    from polycast.up.parts import Part, UpOptions
    from polycast.up.supervisor import Supervisor

NAME = "up"
HELP = """Run everything in one terminal: the broker with its console, and Spark with the pipelines archive and
traffic.

Each part is a process, and is restarted when it ends. Without Spark or Java the broker runs alone. Shows a status
display on a terminal, and lines in a pipe. SIGTERM or ctrl-C stops everything; a second one kills it."""
EXAMPLE = "polycast up --demo"


def run(
    demo: bool = typer.Option(False, "--demo", help="Run clients that publish and subscribe in all dialects."),
    config: Path | None = typer.Option(None, envvar="POLYCAST_CONFIG", help="Configuration file (TOML)."),
    data: str | None = typer.Option(None, help="The data folder.", metavar="DIR"),
    listen: list[str] = typer.Option(
        [], help="Open this listener; others only if named too.", metavar="NAME=ADDRESS"
    ),
    nodes: int = typer.Option(
        1, min=1, max=9, help="Run a cluster of so many nodes, each with a nats-server; 3 or 5 survive a failure."
    ),
    no_spark: bool = typer.Option(False, "--no-spark", help="Without Spark: no pipelines, no SQL."),
    set_: list[str] = typer.Option(
        [],
        "--set",
        help="A setting of the broker, or archive.KEY or traffic.KEY of a pipeline.",
        metavar="KEY=VALUE",
    ),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log every connection."),
) -> None:
    options = _to_options(config, data, listen, set_, verbose, demo=demo, spark=not no_spark)
    parts = _to_parts(options, nodes)
    asyncio.run(_run_on_terminal(options, parts) if sys.stdout.isatty() else _run_in_pipe(parts))


def _to_parts(options: UpOptions, nodes: int) -> list[Part]:
    from polycast.up.parts import to_parts

    if nodes == 1:
        return to_parts(options)
    if not options.data:
        raise UsageError("a cluster needs the log", "leave log.enabled=false out")
    from polycast.up.nodes import node_parts, to_cluster

    cluster = to_cluster(options, nodes)
    return to_parts(cluster.nodes[0], [*cluster.servers, *node_parts(cluster)])


def _to_options(
    config: Path | None, data: str | None, listen: list[str], set_: list[str], verbose: bool, **more: bool
) -> UpOptions:
    """Raises UsageError for invalid settings before any process starts."""
    from polycast.pipelines.service import NAMES
    from polycast.server import load
    from polycast.up.parts import UpOptions

    pipelines = [text for text in set_ if text.startswith(tuple(f"{name}." for name in NAMES))]
    broker = [text for text in set_ if text not in pipelines]
    flags = [split(text, "--listen", "listen.") for text in listen] + [split(text, "--set") for text in broker]
    flags += [("log.data", data)] if data is not None else []
    settings = load(config, os.environ, flags).settings
    flags_given = [f"--set={text}" for text in broker]
    flags_given += [f"--config={config}"] if config else []
    flags_given += [f"--data={data}"] if data is not None else []
    flags_given += ["--verbose"] if verbose else []
    return UpOptions(
        flags_given, settings.listen, settings.log.data if settings.log.enabled else "", pipelines, **more
    )


async def _run_in_pipe(parts: list[Part]) -> None:
    from polycast.up.line_output import LineOutput
    from polycast.up.supervisor import Supervisor

    await _supervise(Supervisor(parts, LineOutput()))


async def _run_on_terminal(options: UpOptions, parts: list[Part]) -> None:
    from polycast.up.display import Display
    from polycast.up.parts import reachable_address
    from polycast.up.stats_poller import StatsPoller
    from polycast.up.supervisor import Supervisor

    with Display(parts, stdio.to_console(sys.stdout)) as display:
        supervisor = Supervisor(parts, display)
        log = Path(options.data) / "log" if options.data else None
        poller = StatsPoller(lambda: reachable_address(supervisor.listening.get("http", ())), log, display.show)
        task = asyncio.create_task(poller.run())
        try:
            await _supervise(supervisor)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _supervise(supervisor: Supervisor) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    loop.add_signal_handler(signal.SIGHUP, _hang_up, supervisor)
    await supervisor.run()


def _hang_up(supervisor: Supervisor) -> None:
    """On a terminal SIGHUP stops everything; otherwise it makes the broker reload its settings."""
    if sys.stdout.isatty():
        supervisor.stop()
    elif child := supervisor.child(supervisor.broker):
        child.send(signal.SIGHUP)
