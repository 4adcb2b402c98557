from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from log.log_builder import LogBuilder, half_sealed
from polycast.spark import session

os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"  # C1 only: tests are too short for C2


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Shared by all tests, because starting Spark takes longer than most of them."""
    running = session("local[2]")
    yield running
    running.stop()


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return half_sealed(tmp_path / "data" / "log")
