"""Shared by the commands that run one Spark query."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from polycast.errors import UsageError
from polycast.model import StartPosition, parse_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = typer.Option("local[*]", help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://...")
TIMES = "-7d (s, m, h or d) or a time such as 2026-11-15T20:00 (UTC)"
POSITIONS = f"an offset, {TIMES}"


@contextmanager
def spark_session(command: str, master: str) -> Iterator[SparkSession]:
    """A Spark session for one query. Maps Spark's exceptions to PolycastError."""
    from pyspark.errors import PySparkException

    from polycast.spark import session
    from polycast.spark.error_text import unwrap

    spark = session(master, f"polycast {command}")
    try:
        yield spark
    except PySparkException as error:
        raise unwrap(error) from error
    finally:
        spark.stop()


def parse_position(flag: str, text: str) -> StartPosition:
    """A time, or an offset in `sequence`."""
    try:
        found = parse_start(text, time.time())
    except UsageError:
        found = "latest"
    if isinstance(found, str):
        raise UsageError(f"{flag} {text} is not a position in the log", f"write {POSITIONS}")
    return found if found.offset is None else StartPosition(sequence=found.offset)


def parse_time(flag: str, text: str) -> float:
    """Seconds since the epoch."""
    found = parse_position(flag, text)
    if found.seconds is None:
        raise UsageError(f"{flag} {text} is not a time", f"write {TIMES}")
    return found.seconds


def to_time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")
