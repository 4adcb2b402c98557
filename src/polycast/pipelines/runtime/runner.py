"""Runs a pipeline: validates the configuration, starts Spark, then follows the query.

    config = prepare_run("archive", data=Path("polycast-data"), once=True)
    report = run(config, show=lambda progress: print(progress.to_json()))

A run ends when all messages are processed (`once`), when `stop` is set, or when the query fails. A stop waits up
to STOP_SECONDS for the current batch. An interrupted batch is repeated by the next run and takes effect once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from polycast.address import split_addresses
from polycast.errors import PolycastError, StartError, UsageError
from polycast.log.files.folder import log_folder
from polycast.log.read.catalog import offset_bounds
from polycast.pipelines import check, find
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun
from polycast.pipelines.runtime.settings import read_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from polycast.pipelines.runtime.lag_reporter import LagReporter
    from polycast.pipelines.runtime.progress import BatchProgress, ProgressListener

Show = Callable[["BatchProgress"], None]
"""Displays the progress of each batch."""

CONNECT_SECONDS = 10.0
POLL_SECONDS = 0.2
MIN_INTERVAL_SECONDS = 0.001
"""Lower bound of the time between two batches, for rates."""
TERMINATION_SECONDS = 10.0
"""How long to wait for the last event of a query that has ended."""
STOP_SECONDS = 10.0
"""How long a stop waits for the current batch."""


@dataclass(frozen=True)
class RunConfig:
    """A run, validated as far as that is possible without Spark."""

    pipeline: Pipeline
    data: Path
    at: str
    settings: Any
    master: str
    once: bool


class RunReport(NamedTuple):
    pipeline: str
    batches: int
    rows: int
    offset: int
    lag: int
    seconds: float
    lines: list[str]
    """Written by the pipeline's `finish`."""


def prepare_run(
    name: str,
    data: Path,
    at: str = "",
    given: Sequence[str] = (),
    master: str = "local[*]",
    once: bool = False,
) -> RunConfig:
    check(name)
    check_spark()
    return prepare_pipeline(find(name), data, at, given, master, once)


def prepare_pipeline(
    pipeline: Pipeline, data: Path, at: str, given: Sequence[str], master: str, once: bool
) -> RunConfig:
    from polycast.client.connect import to_client_session

    settings = read_settings(pipeline.settings, given)
    sessions = [to_client_session("hermod", each, publishing=True) for each in split_addresses(at)]
    check_log(data)
    if pipeline.publishes(settings):
        _check_broker(split_addresses(at), pipeline.name)
    return RunConfig(pipeline, data.absolute(), at or str(sessions[0].address), settings, master, once)


def check_spark() -> None:
    if find_spec("pyspark") is None:
        raise StartError("this command needs Spark, and pyspark is not installed", "pip install 'polycast[spark]'")


def check_log(data: Path) -> None:
    from polycast.spark.log_view import find_log

    try:
        find_log(str(data / "log"))
    except UsageError as error:
        hint = "--data DIR or POLYCAST_DATA sets the data folder; polycast serve --data DIR creates one"
        raise UsageError(f"there is no log in {data}", hint) from error


def _check_broker(addresses: Sequence[str], name: str) -> None:
    """At least one broker must respond."""
    from polycast.client import connect

    try:
        connect("hermod", addresses, publishing=True, timeout=CONNECT_SECONDS, reconnect=False).close()
    except PolycastError as error:
        raise type(error)(f"{name} publishes its results, and {error}", error.hint) from error


@contextlib.contextmanager
def exclusive(config: RunConfig) -> Iterator[None]:
    """Locks the checkpoint of a pipeline: one run at a time. The lock ends with the process."""
    path = config.data / "checkpoints" / f"{config.pipeline.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StartError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            message = f"{config.pipeline.name} is already running in {config.data}, as process {owner}"
            raise StartError(message, "stop that process first, or use another folder: --data DIR") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(fd)


def run(config: RunConfig, show: Show, stop: threading.Event | None = None) -> RunReport:
    """Uses the session of this process, or creates one for this run."""
    from pyspark.sql import SparkSession

    with exclusive(config):
        ours = SparkSession.getActiveSession() is None
        spark = _start_session(config)
        try:
            return run_in_session(spark, config, show, stop or threading.Event())
        finally:
            if ours:
                spark.stop()


def _start_session(config: RunConfig) -> SparkSession:
    """Restores the SIGINT handler, which Spark replaces when it starts."""
    from polycast.spark import session

    before = signal.getsignal(signal.SIGINT)
    spark = session(config.master, f"polycast {config.pipeline.name}")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
    return spark


def run_in_session(spark: SparkSession, config: RunConfig, show: Show, stop: threading.Event) -> RunReport:
    """Uses an existing session. The caller holds the lock of `exclusive`."""
    from polycast.pipelines.runtime.lag_reporter import LagReporter
    from polycast.pipelines.runtime.progress import ProgressListener
    from polycast.spark.error_text import unwrap

    pipeline = config.pipeline
    running = PipelineRun(spark, pipeline, config.data, config.at, config.settings, config.once)
    listener, reporter = ProgressListener(pipeline.name), LagReporter(config.at)
    spark.streams.addListener(listener)
    totals = RunTotals(running, show, reporter)
    totals.report("running")
    try:
        if not stop.is_set():
            _follow(pipeline.start(running), listener, totals, stop)
        completed = config.once and not stop.is_set()
        lines = pipeline.finish(running) if completed and pipeline.finish else []
        totals.report("stopped")
        return totals.to_report(lines)
    except Exception as error:
        failure = unwrap(error)
        totals.report("failed", error=str(failure))
        raise failure from error
    finally:
        spark.streams.removeListener(listener)
        reporter.close()


class RunTotals:
    def __init__(self, run: PipelineRun, show: Show, reporter: LagReporter) -> None:
        self._run = run
        self._pipeline = run.pipeline.name
        self._show = show
        self._reporter = reporter
        self._began = self._added = time.monotonic()
        self._batches = self._rows = 0
        self._last: BatchProgress | None = None
        self._speeds = (0.0, 0.0)
        """Rows per second: input and processed."""
        self._idle_offset = 0

    def add(self, progress: BatchProgress) -> None:
        """Batches without rows are not counted."""
        progress = progress.with_rows(self._run.rows.pop(progress.batch, progress.rows))
        self._batches += progress.rows > 0
        self._rows += progress.rows
        self._last = progress
        now = time.monotonic()
        self._speeds = (
            round(progress.rows / max(now - self._added, MIN_INTERVAL_SECONDS), 1),
            progress.rows_per_second,
        )
        self._added = now
        self._show(progress)
        self.report("running")

    def set_idle(self) -> None:
        """The query has processed all messages that it reads; what else is in the log is no lag."""
        self._speeds, self._added = (0.0, 0.0), time.monotonic()
        _, self._idle_offset = offset_bounds(log_folder(self._run.data))
        self.report("running")

    def report(self, state: str, **more: str) -> None:
        position: dict[str, Any] = {"offset": self._offset(), "state": state, **more}
        if self._last:
            position["batch"] = self._last.batch
        position["input_rows_per_second"], position["rows_per_second"] = self._speeds
        self._reporter.report(self._pipeline, **position)

    def to_report(self, lines: list[str]) -> RunReport:
        offset = self._offset()
        _, end = offset_bounds(log_folder(self._run.data))
        lag = max(0, end - offset)
        seconds = round(time.monotonic() - self._began, 3)
        return RunReport(self._pipeline, self._batches, self._rows, offset, lag, seconds, lines)

    def _offset(self) -> int:
        """Before the first batch of a run, the checkpoint has the offset."""
        from polycast.pipelines.runtime.checkpoint import committed_offset

        last = self._last.offset if self._last else committed_offset(self._run.checkpoint)
        return max(last, self._idle_offset)


def _follow(query: StreamingQuery, listener: ProgressListener, totals: RunTotals, stop: threading.Event) -> None:
    """Until the query ends. Spark delivers listener events with a delay; the last one is QueryEnded."""
    from polycast.pipelines.runtime.progress import BatchProgress, QueryEnded, QueryIdle

    graceful = GracefulStop(query)
    while True:
        active = query.isActive
        event = listener.next(POLL_SECONDS if active else TERMINATION_SECONDS)
        if isinstance(event, BatchProgress):
            totals.add(event)
        elif isinstance(event, QueryIdle):
            totals.set_idle()
        elif isinstance(event, QueryEnded) or not active:
            break
        if active and stop.is_set():
            graceful.stop(batch_ended=isinstance(event, BatchProgress))
    query.awaitTermination()  # raises the error of a failed query


class GracefulStop:
    """Stops a query between two batches, or after STOP_SECONDS."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._deadline = 0.0

    def stop(self, batch_ended: bool) -> None:
        self._deadline = self._deadline or time.monotonic() + STOP_SECONDS
        if batch_ended or not self._query.status["isTriggerActive"] or time.monotonic() > self._deadline:
            self._query.stop()
