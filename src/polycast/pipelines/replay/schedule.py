"""When replayed messages are due.

Messages are sent in slices of time: all that lie within one go out together when the slice begins. So a message
goes out up to one slice early, or late by what it takes to publish a slice; how far apart two messages are does
not drift.
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
    """Its first slice is due at once; the others follow as they did, `speed` times as fast."""

    def __init__(
        self, speed: float, sleep: Callable[[float], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed = speed
        self._sleep = sleep
        self._now = now
        self._begin: tuple[float, int] | None = None

    def wait(self, micros: int) -> None:
        """Until what happened at that time is due."""
        if self._begin is None:
            self._begin = (self._now(), micros)
        began, first = self._begin
        due = began + (micros - first) / MICROS / self._speed
        while (left := due - self._now()) > 0:
            self._sleep(min(left, MAX_SLEEP_SECONDS))


def interruptible_sleep(spark: SparkSession) -> Callable[[float], None]:
    """Sleeps in Spark's own thread: a stop of the query wakes it, and its batch comes again with the next run."""
    thread = spark._jvm.java.lang.Thread  # type: ignore[union-attr]  # there is one in every classic session
    return lambda seconds: thread.sleep(round(seconds * 1000))


def with_slices(rows: DataFrame, width: int) -> DataFrame:
    """Each row with the time its slice begins at, in microseconds. Where clocks went back, order counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it

    latest = F.max(F.unix_micros("time")).over(Window.orderBy("offset"))
    return rows.withColumn("slice", F.floor(latest / width).cast("long") * width)
