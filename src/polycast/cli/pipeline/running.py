from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT
from polycast.cli.log.data_folder import DATA

if TYPE_CHECKING:
    from polycast.pipelines.runtime.progress import BatchProgress
    from polycast.pipelines.runtime.runner import RunConfig, RunReport

NAME = "run"
HELP = """Run a pipeline: until SIGTERM or ctrl-C, or with --once until all is done that is in the log by now.

It goes on where the last run ended. On a terminal there is a progress bar; in a pipe each batch is a JSON object
on a line of its own, and the last line is about the whole run."""
EXAMPLE = "polycast pipeline run archive --once --set subscribe='orders.>'"

SECOND_SIGNAL = 1


def run(
    name: str = typer.Argument(help="The pipeline: 'polycast pipeline list' names them."),
    data: str = DATA,
    at: str = AT,
    once: bool = typer.Option(False, "--once", help="End when all that is in the log by now is done."),
    master: str = typer.Option("local[*]", help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://..."),
    set_: list[str] = typer.Option([], "--set", help="A setting of the pipeline.", metavar="KEY=VALUE"),
) -> None:
    from polycast.pipelines.runtime import runner

    follow(runner.prepare_run(name, Path(data), at, set_, master, once))


def follow(config: RunConfig) -> None:
    """To its end, with signs of life."""
    from polycast.pipelines.runtime import runner

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="polycast: %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it shows stacks of what is told in words anyway
    with _stopping() as stop, _showing() as show:
        report = runner.run(config, show, stop)
    _tell(report)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """The first signal asks for an end, the second one makes it."""
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            os._exit(SECOND_SIGNAL)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _showing() -> Iterator[Callable[[BatchProgress], None]]:
    if not sys.stdout.isatty():
        yield lambda progress: _write(progress.to_json())
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = "batch {task.fields[batch]:,}  {task.fields[speed]:,.0f} rows/s  lag {task.fields[lag]:,}"
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(text), TimeElapsedColumn())
    with Progress(*columns, console=stdio.to_console(sys.stderr), transient=True) as bar:
        task = bar.add_task("Spark begins", total=None, batch=0, speed=0.0, lag=0)
        yield lambda told: bar.update(
            task,
            description=told.pipeline,
            completed=told.offset,
            total=told.offset + told.lag,
            batch=told.batch,
            speed=told.rows_per_second,
            lag=told.lag,
        )


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _tell(report: RunReport) -> None:
    if not sys.stdout.isatty():
        _write(json.dumps({"done": True, **report._asdict()}, ensure_ascii=False))
        return
    _write(f"{report.pipeline}: {report.rows:,} rows in {report.batches:,} batches, {report.seconds:,.1f} s")
    for line in report.lines:
        _write(line)
