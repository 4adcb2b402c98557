from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from kit.broker import Broker
from kit.room import Room

SPARK = "tests/spark/test_spark_"
OWN_SPARK = (("crash", "runner"), ("standing", "cluster"))
"""Lanes of files whose tests start a Java of their own and wait most of the time. The files of one lane run one
after the other. All other tests of this folder share one Spark."""
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 1 << 30
IN_MEMORY = "tests/"
"""Tests that need no real disk for their fsync calls."""


settings.register_profile("default", max_examples=30, deadline=None)
settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("long", max_examples=1000, deadline=None)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests start first."""
    for item in items:
        if spark_lane(item.nodeid) is not None:
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: -1 if (lane := spark_lane(item.nodeid)) is None else lane, reverse=True)


def spark_lane(nodeid: str) -> int | None:
    """The tests of one lane run in one process."""
    if not nodeid.startswith(SPARK):
        return None
    name = nodeid.removeprefix(SPARK).partition(".py")[0]
    return next((lane for lane, names in enumerate(OWN_SPARK) if name in names), len(OWN_SPARK))


class Sharing(LoadFileScheduling):  # type: ignore[misc]
    """A file stays in one process, and so do all tests that share a Spark."""

    def _split_scope(self, nodeid: str) -> str:
        lane = spark_lane(nodeid)
        return str(super()._split_scope(nodeid)) if lane is None else f"{SPARK}{lane}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """In memory for some tests, if there is enough; removed unless the test fails."""
    if not request.node.nodeid.startswith(IN_MEMORY) or not _has_memory():
        yield tmp_path
        return
    failed = request.session.testsfailed
    folder = Path(tempfile.mkdtemp(prefix="polycast-test-", dir=MEMORY))
    yield folder
    if request.session.testsfailed == failed:
        shutil.rmtree(folder)


def _has_memory() -> bool:
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """For tests that do not disturb each other."""
    with Broker() as running:
        yield running


@pytest.fixture
def room(broker: Broker) -> Iterator[Room]:
    with Room(broker) as peers:
        yield peers
