"""The memory of frames that are not finished: who waits for room, and who is closed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.io.partial_frames import PartialFrames

LIMIT = 1000


class Peer:
    def __init__(self) -> None:
        self.is_read = True
        self.came = 0

    def queued(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def partial_bytes(self) -> int:
        return self.came


@pytest.fixture
def unfinished() -> Iterator[PartialFrames]:
    made = PartialFrames(LIMIT, MemoryBudget(1))
    yield made
    assert made.total == 0


def test_whoever_wants_more_than_there_is_waits_until_there_is_room(unfinished: PartialFrames) -> None:
    first, second, third = Peer(), Peer(), Peer()
    unfinished.note(first, 400, 400, 0.0, begins=True)
    unfinished.note(second, 300, 600, 0.0, begins=True)
    assert not second.is_read  # three quarters are for those who grow
    unfinished.note(third, 200, 200, 0.0, begins=True)
    assert third.is_read
    assert unfinished.total == 900
    unfinished.forget(third)
    assert not second.is_read
    unfinished.forget(first)
    assert second.is_read
    assert unfinished.total == 600
    assert unfinished.waits == 1
    unfinished.forget(second)


def test_the_oldest_frame_always_goes_on(unfinished: PartialFrames) -> None:
    first, second = Peer(), Peer()
    unfinished.note(first, 900, 5_000, 0.0, begins=True)
    unfinished.note(second, 900, 900, 0.0, begins=True)
    assert (first.is_read, second.is_read) == (True, False)
    assert unfinished.is_full
    unfinished.note(first, 100, 100, 1.0, begins=True)  # another frame, which is the youngest now
    unfinished.note(first, 100, 9_000, 1.0, begins=False)
    assert (first.is_read, second.is_read) == (False, True)
    unfinished.forget(second)
    assert first.is_read
    unfinished.forget(first)


def test_somebody_can_always_go_on_and_nothing_is_forgotten(unfinished: PartialFrames) -> None:
    dice = random.Random(3)
    peers = [Peer() for _ in range(20)]
    sizes = dict.fromkeys(peers, 0)
    for _ in range(5_000):
        peer = dice.choice(peers)
        if not peer.is_read:
            continue
        if dice.random() < 0.4:
            unfinished.forget(peer)
            sizes[peer] = 0
        else:
            held = sizes[peer] or dice.randrange(1, 200)
            unfinished.note(peer, held, held * 2, 0.0, begins=not sizes[peer])
            sizes[peer] = held * 2 if peer.is_read else held
        busy = [each for each in peers if sizes[each]]
        assert not busy or any(each.is_read for each in busy)
    for peer in peers:
        unfinished.forget(peer)
        assert peer.is_read


def test_a_frame_must_go_on(unfinished: PartialFrames) -> None:
    dead, slow = Peer(), Peer()
    for peer in (dead, slow):
        unfinished.note(peer, 1, 1, 0.0, begins=True)
    for now in range(1, 10):
        slow.came += now % 2
        assert list(unfinished.overdue(float(now), 10.0)) == []
    assert list(unfinished.overdue(10.0, 10.0)) == [(dead, "nothing of an incomplete frame was received for 10 s")]
    unfinished.forget(dead)
    assert list(unfinished.overdue(18.0, 10.0)) == []
    [(late, _)] = unfinished.overdue(19.0, 10.0)
    assert late is slow
    unfinished.forget(slow)


def test_time_in_which_it_is_not_read_does_not_count(unfinished: PartialFrames) -> None:
    first, second = Peer(), Peer()
    unfinished.note(first, LIMIT, LIMIT, 0.0, begins=True)
    unfinished.note(second, LIMIT, LIMIT, 0.0, begins=True)
    for now in range(1, 10):
        first.came += now
        assert list(unfinished.overdue(float(now), 10.0)) == []
    [(late, reason)] = unfinished.overdue(10.0, 10.0)
    assert late is first
    assert "while other connections wait for memory" in reason
    unfinished.forget(first)
    assert list(unfinished.overdue(19.0, 10.0)) == []
    [(late, _)] = unfinished.overdue(20.0, 10.0)
    assert late is second
    unfinished.forget(second)
