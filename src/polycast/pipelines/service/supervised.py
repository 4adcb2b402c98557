"""Restarts a pipeline's query when it fails, for the lifetime of the process.

A broker restart fails the queries that publish. They resume from their checkpoints, without duplicates.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polycast.pipelines import find
from polycast.pipelines.runtime.progress import BatchProgress
from polycast.pipelines.runtime.runner import exclusive, prepare_pipeline, run_in_session
from polycast.pipelines.service.backoff import Backoff
from polycast.spark.error_text import to_line, unwrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polycast.standing")


class SupervisedPipeline:
    """`run` blocks; call it in its own thread."""

    def __init__(
        self, name: str, data: Path, at: str, given: Sequence[str], print_line: Callable[[str], None]
    ) -> None:
        self.name = name
        self._data = data
        self._at = at
        self._given = given
        self._print = print_line
        self._announced = False

    def run(self, spark: SparkSession, stop: threading.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            started = time.monotonic()
            try:
                self._run_once(spark, stop)
            except Exception as error:
                seconds = backoff.after(time.monotonic() - started)
                self._print(f"{self.name} failed: {to_line(unwrap(error))}; again in {seconds:.0f} s")
                self._announced = False
                stop.wait(seconds)

    def _run_once(self, spark: SparkSession, stop: threading.Event) -> None:
        config = prepare_pipeline(find(self.name), self._data, self._at, self._given, "", once=False)
        with exclusive(config):
            run_in_session(spark, config, self._show, stop)

    def _show(self, progress: BatchProgress) -> None:
        if not self._announced:
            self._announced = True
            self._print(f"{self.name} running")
