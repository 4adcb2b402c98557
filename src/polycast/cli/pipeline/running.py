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
HELP = """Run a pipeline until SIGTERM or ctrl-C, or with --once to the current end of the log.

Resumes where the last run ended. Shows a progress bar on a terminal; in a pipe, a JSON object per batch and one
for the whole run."""
EXAMPLE = "polycast pipeline run archive --once --set subscribe='orders.>'"

SECOND_SIGNAL = 1


def run(
    name: str = typer.Argument(help="The pipeline; see 'polycast pipeline list'."),
    data: str = DATA,
    at: str = AT,
    once: bool = typer.Option(False, "--once", help="Stop at the current end of the log."),
    master: str = typer.Option("local[*]", help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://..."),
    set_: list[str] = typer.Option([], "--set", help="A setting of the pipeline.", metavar="KEY=VALUE"),
) -> None:
    from polycast.pipelines.runtime import runner

    follow(runner.prepare_run(name, Path(data), at, set_, master, once))


def follow(config: RunConfig) -> None:
    """Runs the pipeline and shows its progress."""
    from polycast.pipelines.runtime import runner

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="polycast: %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its stack traces repeat our errors
    with _stopping() as stop, _showing() as show:
        report = runner.run(config, show, stop)
    _show_report(report)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """The first signal stops the pipeline, the second exits at once."""
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
        task = bar.add_task("starting Spark", total=None, batch=0, speed=0.0, lag=0)
        yield lambda progress: bar.update(
            task,
            description=progress.pipeline,
            completed=progress.offset,
            total=progress.offset + progress.lag,
            batch=progress.batch,
            speed=progress.rows_per_second,
            lag=progress.lag,
        )


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _show_report(report: RunReport) -> None:
    if not sys.stdout.isatty():
        _write(json.dumps({"done": True, **report._asdict()}, ensure_ascii=False))
        return
    _write(f"{report.pipeline}: {report.rows:,} rows in {report.batches:,} batches, {report.seconds:,.1f} s")
    for line in report.lines:
        _write(line)
