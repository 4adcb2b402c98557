"""Runs a pipeline: what was asked for is checked first, then Spark begins, then batch follows batch.

    order = to_order("archive", data=Path("polycast-data"), once=True)
    report = run(order, show=lambda progress: print(progress.to_json()))

A run ends when everything is done (`once`), when `stop` is set, or when the query fails. A stop waits for the
batch at hand, if that does not take long; a batch that is cut off comes again with the next run, and has its
effect once.
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

CONNECT_SECONDS = 10.0
POLL_SECONDS = 0.2
MIN_INTERVAL_SECONDS = 0.001
"""Two batches are never less than this apart."""
TERMINATION_SECONDS = 10.0
"""How long Spark's last words about a query are waited for."""
STOP_SECONDS = 10.0
"""How long the batch at hand is waited for."""


@dataclass(frozen=True)
class RunConfig:
    """What was asked for, and can be done as far as one can tell without Spark."""

    pipeline: Pipeline
    data: Path
    at: str
    settings: Any
    master: str
    once: bool


class RunReport(NamedTuple):
    """What a whole run came to."""

    pipeline: str
    batches: int
    rows: int
    offset: int
    lag: int
    seconds: float
    lines: list[str]
    """What the pipeline itself has to say."""


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
    """The same for a pipeline that is at hand."""
    from polycast.client.connect import to_client_session

    settings = read_settings(pipeline.settings, given)
    address = str(to_client_session("hermod", at, publishing=True).address)
    check_log(data)
    if pipeline.publishes(settings):
        _check_broker(address, pipeline.name)
    return RunConfig(pipeline, data.absolute(), address, settings, master, once)


def check_spark() -> None:
    if find_spec("pyspark") is None:
        raise StartError("pipelines run on Spark, and pyspark is not installed", "pip install 'polycast[spark]'")


def check_log(data: Path) -> None:
    from polycast.spark.log_view import find_log

    try:
        find_log(str(data / "log"))
    except UsageError as error:
        hint = "--data DIR or POLYCAST_DATA says where the data folder is; polycast serve --data DIR makes one"
        raise UsageError(f"there is no log in {data}", hint) from error


def _check_broker(address: str, name: str) -> None:
    from polycast.client import connect

    try:
        connect("hermod", address, publishing=True, timeout=CONNECT_SECONDS).close()
    except PolycastError as error:
        raise type(error)(f"{name} publishes what it finds, and {error}", error.hint) from error


@contextlib.contextmanager
def exclusive(order: RunConfig) -> Iterator[None]:
    """One run of a pipeline at a time has its checkpoint, for as long as the process lives."""
    path = order.data / "checkpoints" / f"{order.pipeline.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StartError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 20, 0).decode(errors="replace").strip() or "another one"
            what = f"{order.pipeline.name} is running in {order.data} already, as process {owner}"
            raise StartError(what, "stop that one first; --data DIR takes another folder") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(fd)


def run(order: RunConfig, show: Callable[[BatchProgress], None], stop: threading.Event | None = None) -> RunReport:
    """In the session of this process, or in one that begins and ends with the run."""
    from pyspark.sql import SparkSession

    with exclusive(order):
        ours = SparkSession.getActiveSession() is None
        spark = _begin(order)
        try:
            return run_in_session(spark, order, show, stop or threading.Event())
        finally:
            if ours:
                spark.stop()


def _begin(order: RunConfig) -> SparkSession:
    """Spark takes the interrupt for itself when it begins; whoever had it before gets it back."""
    from polycast.spark import session

    before = signal.getsignal(signal.SIGINT)
    spark = session(order.master, f"polycast {order.pipeline.name}")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
    return spark


def run_in_session(
    spark: SparkSession, order: RunConfig, show: Callable[[BatchProgress], None], stop: threading.Event
) -> RunReport:
    """In a session that is there. The caller sees to it that no other run has the checkpoint."""
    from polycast.pipelines.runtime.lag_reporter import LagReporter
    from polycast.pipelines.runtime.progress import ProgressListener
    from polycast.spark.error_text import unwrap

    running = PipelineRun(spark, order.pipeline, order.data, order.at, order.settings, order.once)
    listener, teller = ProgressListener(order.pipeline.name), LagReporter(order.at)
    spark.streams.addListener(listener)
    tally = RunTotals(running, show, teller)
    tally.tell("running")
    try:
        if not stop.is_set():
            _follow(order.pipeline.start(running), listener, tally, stop)
        lines = (
            order.pipeline.finish(running) if order.once and order.pipeline.finish and not stop.is_set() else []
        )
        tally.tell("stopped")
        return tally.to_report(lines)
    except Exception as error:
        failure = unwrap(error)
        tally.tell("failed", error=str(failure))
        raise failure from error
    finally:
        spark.streams.removeListener(listener)
        teller.close()


class RunTotals:
    """What has been done so far, and who wants to know."""

    def __init__(self, run: PipelineRun, show: Callable[[BatchProgress], None], teller: LagReporter) -> None:
        self._run = run
        self._pipeline = run.pipeline.name
        self._show = show
        self._teller = teller
        self._began = self._added = time.monotonic()
        self._batches = self._rows = 0
        self._last: BatchProgress | None = None
        self._speeds = (0.0, 0.0)
        """Of rows that come in, and of rows that are worked on."""

    def add(self, progress: BatchProgress) -> None:
        """Without rows it is no batch that anybody would count."""
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
        self.tell("running")

    def rest(self) -> None:
        """There is nothing to do."""
        self._speeds, self._added = (0.0, 0.0), time.monotonic()
        self.tell("running")

    def tell(self, state: str, **more: str) -> None:
        position: dict[str, Any] = {"offset": self._offset(), "state": state, **more}
        if self._last:
            position["batch"] = self._last.batch
        position["input_rows_per_second"], position["rows_per_second"] = self._speeds
        self._teller.tell(self._pipeline, **position)

    def to_report(self, lines: list[str]) -> RunReport:
        offset = self._offset()
        _, end = offset_bounds(log_folder(self._run.data))
        lag = max(0, end - offset)
        seconds = round(time.monotonic() - self._began, 3)
        return RunReport(self._pipeline, self._batches, self._rows, offset, lag, seconds, lines)

    def _offset(self) -> int:
        """As long as there was nothing to do, the checkpoint knows."""
        from polycast.pipelines.runtime.checkpoint import committed_offset

        return self._last.offset if self._last else committed_offset(self._run.checkpoint)


def _follow(query: StreamingQuery, listener: ProgressListener, tally: RunTotals, stop: threading.Event) -> None:
    """To its end. What Spark tells comes a little later than it happens; its last word is that it has ended."""
    from polycast.pipelines.runtime.progress import BatchProgress, QueryEnded, QueryIdle

    leave = GracefulStop(query)
    while True:
        active = query.isActive
        told = listener.next(POLL_SECONDS if active else TERMINATION_SECONDS)
        if isinstance(told, BatchProgress):
            tally.add(told)
        elif isinstance(told, QueryIdle):
            tally.rest()
        elif isinstance(told, QueryEnded) or not active:
            break
        if active and stop.is_set():
            leave.take(isinstance(told, BatchProgress))
    query.awaitTermination()  # raises what it failed with


class GracefulStop:
    """Stops a query between two batches, if that comes about soon."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._patience = 0.0

    def take(self, between: bool) -> None:
        self._patience = self._patience or time.monotonic() + STOP_SECONDS
        if between or not self._query.status["isTriggerActive"] or time.monotonic() > self._patience:
            self._query.stop()
