from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from kit.broker import Broker
from kit.room import Room

SPARK = "tests/spark/"
KILLS = "tests/spark/test_spark_crash.py"
"""Has a Spark of its own, and waits most of the time."""


settings.register_profile("default", max_examples=40, deadline=None)
settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("long", max_examples=1000, deadline=None)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    for item in items:
        if item.nodeid.startswith(SPARK):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), not item.nodeid.startswith(KILLS)))


class Sharing(LoadFileScheduling):  # type: ignore[misc]
    """Where several processes share the tests, a file stays in one of them, and so do those that share a Spark."""

    def _split_scope(self, nodeid: str) -> str:
        shared = nodeid.startswith(SPARK) and not nodeid.startswith(KILLS)
        return SPARK if shared else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """For tests that do not disturb each other."""
    with Broker() as running:
        yield running


@pytest.fixture
def room(broker: Broker) -> Iterator[Room]:
    with Room(broker) as peers:
        yield peers
