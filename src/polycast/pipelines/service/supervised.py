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
from polycast.pipelines.runtime.progress import Progress
from polycast.pipelines.runtime.runner import alone, order_of, run_in
from polycast.pipelines.service.backoff import Rest
from polycast.spark.faults import to_line, unwrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polycast.standing")


class Keeping:
    """`run` is for a thread of its own."""

    def __init__(self, name: str, data: Path, at: str, given: Sequence[str], say: Callable[[str], None]) -> None:
        self.name = name
        self._data = data
        self._at = at
        self._given = given
        self._say = say
        self._silent = True

    def run(self, spark: SparkSession, stop: threading.Event) -> None:
        rest = Rest()
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
        order = order_of(find(self.name), self._data, self._at, self._given, "", once=False)
        with alone(order):
            run_in(spark, order, self._show, stop)

    def _show(self, progress: Progress) -> None:
        if self._silent:
            self._silent = False
            self._say(f"{self.name} running")
