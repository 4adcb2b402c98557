"""Brokers in a ring stop exchanging subscriptions when clients stop changing theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.net import Net
from kit.wire import wait_for

STORM_LINES = 1000
"""More lines than three brokers need for one client that connects and disconnects."""
STABLE_LOOKS = 40


@pytest.fixture
def triangle() -> Iterator[Net]:
    with Net() as net:
        net.start("A", "", "--forward")
        net.start("B", "A", "--forward")
        net.start("C", "BA", "--forward")
        yield net


def lines_at_rest(net: Net) -> int:
    """The lines over the busiest link when traffic has stopped, or exceeds the limit."""
    looks: list[int] = []

    def at_rest() -> bool:
        looks.append(max(link.to_target.count(b"\n") for link in net.links.values()))
        return looks[-1] > STORM_LINES or (len(looks) > STABLE_LOOKS and looks[-STABLE_LOOKS] == looks[-1])

    wait_for(at_rest, "the links to be at rest")
    return looks[-1]


def test_a_client_that_comes_and_goes_starts_no_storm(triangle: Net) -> None:
    for _ in range(3):
        for name, room in triangle.rooms.items():
            room.simplest(b"sub //x\n").close()
            room.client(f"subscribe {name}.>\n".encode()).close()
    assert lines_at_rest(triangle) <= STORM_LINES


def test_repeated_subscribing_starts_no_storm(triangle: Net) -> None:
    client = triangle.rooms["A"].simplest(b"sub //x\n")
    for _ in range(10):
        triangle.rooms["A"].send_commands(client, b"unsub //x\nsub //x\n")
        triangle.flush()
    assert lines_at_rest(triangle) <= STORM_LINES
