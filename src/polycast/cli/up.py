from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polycast.cli import streams
from polycast.cli.serve import split

if TYPE_CHECKING:
    from polycast.up.parts import Wish
    from polycast.up.supervisor import Supervisor

NAME = "up"
HELP = """Run everything in one terminal: the broker with its console, and Spark with the pipelines archive and
traffic.

Each is a process of its own, and is started again when it ends. The broker does without Spark, also where Spark or
Java is missing. On a terminal there is a status display, in a pipe a line for whatever happens. SIGTERM or ctrl-C
stops all of it; a second one at once."""
EXAMPLE = "polycast up --demo"


def run(
    demo: bool = typer.Option(False, "--demo", help="Make lively traffic in all dialects."),
    config: Path | None = typer.Option(None, envvar="POLYCAST_CONFIG", help="A TOML file with settings."),
    data: str | None = typer.Option(None, help="The data folder.", metavar="DIR"),
    listen: list[str] = typer.Option([], help="Open this listener, and only those named.", metavar="NAME=ADDRESS"),
    no_spark: bool = typer.Option(False, "--no-spark", help="Run no pipelines and answer no SQL."),
    set_: list[str] = typer.Option(
        [],
        "--set",
        help="A setting of the broker, or as archive.KEY or traffic.KEY of a pipeline.",
        metavar="KEY=VALUE",
    ),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log every connection."),
) -> None:
    wish = _to_wish(config, data, listen, set_, verbose, demo=demo, spark=not no_spark)
    asyncio.run(_show(wish) if sys.stdout.isatty() else _tell(wish))


def _to_wish(
    config: Path | None, data: str | None, listen: list[str], set_: list[str], verbose: bool, **more: bool
) -> Wish:
    """What is wrong with it is said here, before anything is started."""
    from polycast.pipelines.service import NAMES
    from polycast.server import load
    from polycast.up.parts import Wish

    theirs = [text for text in set_ if text.startswith(tuple(f"{name}." for name in NAMES))]
    ours = [text for text in set_ if text not in theirs]
    flags = [split(text, "--listen", "listen.") for text in listen] + [split(text, "--set") for text in ours]
    flags += [("log.data", data)] if data is not None else []
    settings = load(config, os.environ, flags).settings
    given = [f"--set={text}" for text in ours]
    given += [f"--config={config}"] if config else []
    given += [f"--data={data}"] if data is not None else []
    given += ["--verbose"] if verbose else []
    return Wish(given, settings.listen, settings.log.data if settings.log.enabled else "", theirs, **more)


async def _tell(wish: Wish) -> None:
    from polycast.up.lines import Lines
    from polycast.up.parts import to_parts
    from polycast.up.supervisor import Supervisor

    await _supervise(Supervisor(to_parts(wish), Lines()))


async def _show(wish: Wish) -> None:
    from polycast.up.display import Display
    from polycast.up.figures import Asking
    from polycast.up.parts import to_parts, to_reach
    from polycast.up.supervisor import Supervisor

    parts = to_parts(wish)
    with Display(parts, streams.to_console(sys.stdout)) as display:
        supervisor = Supervisor(parts, display)
        log = Path(wish.data) / "log" if wish.data else None
        asking = Asking(lambda: to_reach(supervisor.told.get("http", ())), log, display.show)
        task = asyncio.create_task(asking.run())
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
    """A terminal that is closed ends all of it; without one, this tells the broker to read its settings again."""
    if sys.stdout.isatty():
        supervisor.stop()
    elif child := supervisor.child(supervisor.broker):
        child.send(signal.SIGHUP)
