from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from kit.room import Room


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests: a file stays in one of them, and so does all that starts Spark."""
    for item in items:
        if "spark" in item.path.parts:
            item.add_marker(pytest.mark.spark)
        group = "spark" if item.get_closest_marker("spark") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """For tests that do not disturb each other."""
    with Broker() as running:
        yield running


@pytest.fixture
def room(broker: Broker) -> Iterator[Room]:
    with Room(broker) as peers:
        yield peers
