"""Runs CLI commands with the Spark session that the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

COMMANDS = ("why", "estimate", "find", "sql")


def run_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the commands use this session and leave it running."""

    @contextmanager
    def spark_session(command: str, master: str) -> Iterator[SparkSession]:
        yield spark

    for command in COMMANDS:
        monkeypatch.setattr(f"polycast.cli.{command}.spark_session", spark_session)
