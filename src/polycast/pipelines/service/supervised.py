"""A standing pipeline: its query is started again when it fails, for as long as the process lives.

A broker that restarts fails the queries that publish. They go on from their checkpoints; nothing is there twice.
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
    """`run` is for a thread of its own."""

    def __init__(self, name: str, data: Path, at: str, given: Sequence[str], say: Callable[[str], None]) -> None:
        self.name = name
        self._data = data
        self._at = at
        self._given = given
        self._say = say
        self._silent = True

    def run(self, spark: SparkSession, stop: threading.Event) -> None:
        rest = Backoff()
        while not stop.is_set():
            began = time.monotonic()
            try:
                self._run_once(spark, stop)
            except Exception as error:
                seconds = rest.after(time.monotonic() - began)
                words = to_line(unwrap(error))
                self._say(f"{self.name} failed: {words}; again in {seconds:.0f} s")
                self._silent = True
                stop.wait(seconds)

    def _run_once(self, spark: SparkSession, stop: threading.Event) -> None:
        order = prepare_pipeline(find(self.name), self._data, self._at, self._given, "", once=False)
        with exclusive(order):
            run_in_session(spark, order, self._show, stop)

    def _show(self, progress: BatchProgress) -> None:
        if self._silent:
            self._silent = False
            self._say(f"{self.name} running")
