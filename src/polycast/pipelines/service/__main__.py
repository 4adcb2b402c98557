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

SETTINGS = {"spark.scheduler.mode": "FAIR"}
OFFER_SECONDS = 10.0
"""How long is waited for the broker before this says that it runs."""
LOOK_SECONDS = 1.0
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
    parser.add_argument("--sql-seconds", type=float, default=25.0, help="how long a query may take")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    return parser.parse_args()


def _run(asked: argparse.Namespace) -> None:
    restrict(umask_of(asked.data))
    _log_to_stderr()
    stop = _stop_signal()
    _check_here()
    given = {name: _settings_of(name, asked.settings) for name in NAMES}
    from polycast.pipelines.service.supervised import SupervisedPipeline
    from polycast.spark import session

    spark = session(asked.master, "polycast", SETTINGS)
    _stop_signal(stop)  # Spark takes the interrupt for itself when it begins
    keepings = [SupervisedPipeline(name, asked.data, asked.hermod, given[name], _say) for name in NAMES]
    threads = [_start(each.run, spark, stop) for each in keepings]
    _answer(spark, asked)
    _say("running")
    while not stop.wait(LOOK_SECONDS):
        if not is_alive(spark):
            raise StartError("Spark has ended")
    for thread in threads:
        thread.join()
    spark.stop()


def _log_to_stderr() -> None:
    """Our own words alone: others show stacks of what is told in words anyway."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("polycast").setLevel(logging.WARNING)
    logging.getLogger("polycast.sql").setLevel(logging.INFO)


def is_alive(spark: SparkSession) -> bool:
    """Java may be killed, or give up by itself, and Python would not notice."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def _start(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _stop_signal(stop: threading.Event | None = None) -> threading.Event:
    """The first signal asks for an end, the second one makes it."""
    event = stop or threading.Event()

    def handle(number: int, frame: object) -> None:
        if event.is_set():
            os._exit(SECOND_SIGNAL)
        event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return event


def _check_here() -> None:
    """Ends the process where Spark cannot run."""
    from polycast.pipelines.runtime.runner import check_spark

    try:
        check_spark()
        from polycast.spark.java import find_java

        find_java()
    except StartError as error:
        error.exit_code = SPARK_UNAVAILABLE
        raise


def _settings_of(name: str, settings: list[str]) -> list[str]:
    """Those of one pipeline, which are checked here: before Spark takes its time to begin."""
    from polycast.pipelines import find
    from polycast.pipelines.runtime.settings import read_settings

    own = [text.removeprefix(f"{name}.") for text in settings if text.startswith(f"{name}.")]
    unknown = [text for text in settings if text.partition(".")[0] not in NAMES]
    if unknown:
        raise UsageError(
            f"--set {unknown[0]}: no such pipeline runs all the time", f"there are {', '.join(NAMES)}"
        )
    read_settings(find(name).settings, own)
    return own


def _answer(spark: SparkSession, asked: argparse.Namespace) -> None:
    from polycast.pipelines.service.sql_service import SqlService

    answering = SqlService(spark, asked.data, asked.http, asked.sql_seconds)
    _start(answering.run)
    answering.offered.wait(OFFER_SECONDS)


def _say(line: str) -> None:
    sys.stdout.write(" ".join(line.splitlines()) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
