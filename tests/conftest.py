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

SPARK = "tests/spark/"
OWN_SPARK = tuple(f"tests/spark/test_spark_{name}.py" for name in ("crash", "standing", "runner"))
"""These start a Java of their own, one after the other, and wait most of the time."""
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
        if item.nodeid.startswith(SPARK):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), not item.nodeid.startswith(OWN_SPARK)))


class Sharing(LoadFileScheduling):  # type: ignore[misc]
    """A file stays in one process, and so do all tests that share a Spark."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(OWN_SPARK):
            return OWN_SPARK[0]
        return SPARK if nodeid.startswith(SPARK) else str(super()._split_scope(nodeid))


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
