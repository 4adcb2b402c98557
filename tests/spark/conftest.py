from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from polycast.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests: to start it takes longer than most of them."""
    running = session("local[2,3]")
    yield running
    running.stop()
