from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from kit.room import Room


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """For tests that do not disturb each other."""
    with Broker() as running:
        yield running


@pytest.fixture
def room(broker: Broker) -> Iterator[Room]:
    with Room(broker) as peers:
        yield peers
