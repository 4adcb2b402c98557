from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from polycast.errors import PolycastError, StartError, UsageError
from polycast.log.files.permissions import restrict, umask_of
from polycast.pipelines.service import NAMES, SPARK_UNAVAILABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from polycast.pipelines.service.sql_service import SqlService

SETTINGS = {"spark.scheduler.mode": "FAIR"}
ROUTE_SECONDS = 10.0
"""How long to wait for the SQL route before printing `running`."""
CHECK_SECONDS = 1.0
SECOND_SIGNAL = 1


def main() -> None:
    try:
        _run(_read_arguments())
    except PolycastError as error:
        sys.stderr.write(f"polycast: {error}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        sys.exit(error.exit_code)


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m polycast.pipelines.service")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--hermod", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--sql-seconds", type=float, default=25.0, help="time limit of a query")
    parser.add_argument("--sql-stop-seconds", type=float, default=30.0, help="time limit of a cancelled query")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    return parser.parse_args()


def _run(arguments: argparse.Namespace) -> None:
    restrict(umask_of(arguments.data))
    _log_to_stderr()
    stop = _stop_signal()
    _check_spark()
    given = {name: _settings_of(name, arguments.settings) for name in NAMES}
    from polycast.pipelines.service.supervised import SupervisedPipeline
    from polycast.spark import session

    spark = session(arguments.master, "polycast", SETTINGS)
    _stop_signal(stop)  # again: Spark replaces the SIGINT handler when it starts
    pipelines = [SupervisedPipeline(name, arguments.data, arguments.hermod, given[name], _print) for name in NAMES]
    threads = [_start(each.run, spark, stop) for each in pipelines]
    service = _serve_sql(spark, arguments)
    _print("running")
    while not stop.wait(CHECK_SECONDS):
        if not is_alive(spark):
            raise StartError("Spark has stopped")
        if service.stuck.is_set():
            kill_java(spark)
            raise StartError("a cancelled query did not stop, so Spark was killed")
    for thread in threads:
        thread.join()
    spark.stop()


def _log_to_stderr() -> None:
    """Silences other loggers: they print stack traces of errors that are reported on one line."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("polycast").setLevel(logging.WARNING)
    logging.getLogger("polycast.sql").setLevel(logging.INFO)


def is_alive(spark: SparkSession) -> bool:
    """Python does not notice when the Java process dies."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def kill_java(spark: SparkSession) -> None:
    """At once: an orderly stop would wait for tasks that do not end."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process:
        process.kill()


def _start(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _stop_signal(stop: threading.Event | None = None) -> threading.Event:
    """The first signal stops gracefully, the second one exits at once."""
    event = stop or threading.Event()

    def handle(number: int, frame: object) -> None:
        if event.is_set():
            os._exit(SECOND_SIGNAL)
        event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return event


def _check_spark() -> None:
    """Raises StartError with the exit code SPARK_UNAVAILABLE if Spark cannot run."""
    from polycast.pipelines.runtime.runner import check_spark

    try:
        check_spark()
        from polycast.spark.java import find_java

        find_java()
    except StartError as error:
        error.exit_code = SPARK_UNAVAILABLE
        raise


def _settings_of(name: str, settings: list[str]) -> list[str]:
    """The settings of one pipeline, validated before Spark starts."""
    from polycast.pipelines import find
    from polycast.pipelines.runtime.settings import read_settings

    own = [text.removeprefix(f"{name}.") for text in settings if text.startswith(f"{name}.")]
    unknown = [text for text in settings if text.partition(".")[0] not in NAMES]
    if unknown:
        raise UsageError(f"--set {unknown[0]}: not a standing pipeline", f"pipelines: {', '.join(NAMES)}")
    read_settings(find(name).settings, own)
    return own


def _serve_sql(spark: SparkSession, arguments: argparse.Namespace) -> SqlService:
    from polycast.pipelines.service.sql_service import SqlService

    service = SqlService(spark, arguments.data, arguments.http, arguments.sql_seconds, arguments.sql_stop_seconds)
    _start(service.run)
    service.registered.wait(ROUTE_SECONDS)
    return service


def _print(line: str) -> None:
    sys.stdout.write(" ".join(line.splitlines()) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
