"""Entries gather while nothing waits for them, and are written at once when something does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from polycast.log.write.entry import Entry
from polycast.log.write.entry_queue import EntryQueue, Item

GROUP_BYTES = 100
FOREVER = 3600.0


def entry(number: int, size: int = 1) -> list[Entry]:
    return [Entry([], b"", 0, number, number + 1, size)]


class Taker:
    """The writer thread: takes until the end."""

    def __init__(self, seconds: float) -> None:
        self.queue = EntryQueue(seconds, GROUP_BYTES)
        self.groups: list[list[Item]] = []
        self._taken = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            items = self.queue.take()
            self.groups.append(items)
            self._taken.release()
            if items[-1] is None:
                return

    def wait(self) -> list[Item]:
        assert self._taken.acquire(timeout=60)
        return self.groups[-1]

    def end(self) -> None:
        self.queue.put_now(None)
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def patient() -> Iterator[Taker]:
    """Gathers for an hour."""
    taker = Taker(FOREVER)
    yield taker
    taker.end()


def test_hurry_ends_the_gathering(patient: Taker) -> None:
    for number in range(3):
        patient.queue.put(entry(number))
    assert not patient.groups
    patient.queue.hurry()
    assert patient.wait() == [entry(0), entry(1), entry(2)]


def test_a_full_group_is_taken(patient: Taker) -> None:
    patient.queue.put(entry(0, 60))
    assert not patient.groups
    patient.queue.put(entry(1, 60))
    assert patient.wait() == [entry(0, 60), entry(1, 60)]


def test_what_was_put_before_hurry_does_not_gather_again(patient: Taker) -> None:
    """The first group is full; the rest is hurried as well."""
    patient.queue.put(entry(0, 10))
    patient.queue.put([*entry(1, 95), *entry(2, 95)])
    patient.queue.put(entry(3, 10))
    patient.queue.hurry()
    while sum(len(group) for group in patient.groups) < 3:
        patient.wait()
    assert [item for group in patient.groups for item in group][-1] == entry(3, 10)


def test_a_call_is_taken_at_once_with_what_is_before_it(patient: Taker) -> None:
    patient.queue.put(entry(0))
    patient.queue.put_now(print)
    while not patient.groups or patient.groups[-1][-1] is not print:
        patient.wait()
    assert [item for group in patient.groups for item in group] == [entry(0), print]


def test_hurry_without_entries_is_forgotten(patient: Taker) -> None:
    patient.queue.hurry()
    patient.queue.put(entry(0))
    assert not patient.groups
    patient.queue.hurry()
    assert patient.wait() == [entry(0)]


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_entries_are_taken_in_order_without_a_hurry(seconds: float) -> None:
    taker = Taker(seconds)
    for number in range(1000):
        taker.queue.put(entry(number, number % 30))
    taker.end()
    taken = [item for group in taker.groups for item in group]
    assert taken == [*(entry(number, number % 30) for number in range(1000)), None]
