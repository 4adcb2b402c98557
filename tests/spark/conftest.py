from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from log.shelf import Shelf, stop
from polycast.log.sealing import seal
from polycast.spark import session

os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"  # nothing runs long enough to be compiled twice


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests: to start it takes longer than most of them."""
    running = session("local[2]")
    yield running
    running.stop()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A log of 300 messages: two sealed segments with 100 each and a hot one."""
    folder = tmp_path / "data" / "log"
    folder.mkdir(parents=True)
    made = Shelf(folder)
    for _ in range(2):
        seal(made.segment(40, 60))
    made.segment(70, 30)
    stop(made)
    return made
