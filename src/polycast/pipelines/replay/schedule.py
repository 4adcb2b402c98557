"""Replays messages with their original timing.

All messages within one time slice are published together at the start of the slice. A message is therefore up to
one slice early, or late by the time it takes to publish a slice. Errors do not accumulate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from polycast.log.times import MICROS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_SLEEP_SECONDS = 60.0


class ReplaySchedule:
    """The first slice is due immediately, the others at their original intervals divided by `speed`."""

    def __init__(
        self, speed: float, sleep: Callable[[float], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed = speed
        self._sleep = sleep
        self._now = now
        self._begin: tuple[float, int] | None = None

    def wait(self, micros: int) -> None:
        """Waits until messages of that time are due."""
        if self._begin is None:
            self._begin = (self._now(), micros)
        began, first = self._begin
        due = began + (micros - first) / MICROS / self._speed
        while (left := due - self._now()) > 0:
            self._sleep(min(left, MAX_SLEEP_SECONDS))


def interruptible_sleep(spark: SparkSession) -> Callable[[float], None]:
    """Sleeps in Java, where stopping the query interrupts it; the next run repeats the batch."""
    thread = spark._jvm.java.lang.Thread  # type: ignore[union-attr]  # every classic session has a JVM
    return lambda seconds: thread.sleep(round(seconds * 1000))


def with_slices(rows: DataFrame, width: int) -> DataFrame:
    """Adds the start time of each row's slice, in microseconds. It never decreases, even if a clock went back."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

    latest = F.max(F.unix_micros("time")).over(Window.orderBy("offset"))
    return rows.withColumn("slice", F.floor(latest / width).cast("long") * width)
