"""The memory of incomplete frames: which connections wait, and which are closed."""

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
        self.received = 0

    def queued(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def partial_bytes(self) -> int:
        return self.received


@pytest.fixture
def frames() -> Iterator[PartialFrames]:
    made = PartialFrames(LIMIT, MemoryBudget(1))
    yield made
    assert made.total == 0


def test_a_frame_that_may_not_grow_waits_until_memory_is_free(frames: PartialFrames) -> None:
    first, second, third = Peer(), Peer(), Peer()
    frames.note(first, 400, 400, 0.0, begins=True)
    frames.note(second, 300, 600, 0.0, begins=True)
    assert not second.is_read  # frames grow within three quarters of the limit
    frames.note(third, 200, 200, 0.0, begins=True)
    assert third.is_read
    assert frames.total == 900
    frames.forget(third)
    assert not second.is_read
    frames.forget(first)
    assert second.is_read
    assert frames.total == 600
    assert frames.waits == 1
    frames.forget(second)


def test_the_oldest_frame_may_always_grow(frames: PartialFrames) -> None:
    first, second = Peer(), Peer()
    frames.note(first, 900, 5_000, 0.0, begins=True)
    frames.note(second, 900, 900, 0.0, begins=True)
    assert (first.is_read, second.is_read) == (True, False)
    assert frames.is_full
    frames.note(first, 100, 100, 1.0, begins=True)  # a new frame, which is the youngest now
    frames.note(first, 100, 9_000, 1.0, begins=False)
    assert (first.is_read, second.is_read) == (False, True)
    frames.forget(second)
    assert first.is_read
    frames.forget(first)


def test_at_least_one_frame_can_always_grow(frames: PartialFrames) -> None:
    dice = random.Random(3)
    peers = [Peer() for _ in range(20)]
    sizes = dict.fromkeys(peers, 0)
    for _ in range(5_000):
        peer = dice.choice(peers)
        if not peer.is_read:
            continue
        if dice.random() < 0.4:
            frames.forget(peer)
            sizes[peer] = 0
        else:
            held = sizes[peer] or dice.randrange(1, 200)
            frames.note(peer, held, held * 2, 0.0, begins=not sizes[peer])
            sizes[peer] = held * 2 if peer.is_read else held
        busy = [each for each in peers if sizes[each]]
        assert not busy or any(each.is_read for each in busy)
    for peer in peers:
        frames.forget(peer)
        assert peer.is_read


def test_a_frame_must_make_progress(frames: PartialFrames) -> None:
    dead, slow = Peer(), Peer()
    for peer in (dead, slow):
        frames.note(peer, 1, 1, 0.0, begins=True)
    for now in range(1, 10):
        slow.received += now % 2
        assert list(frames.overdue(float(now), 10.0)) == []
    assert list(frames.overdue(10.0, 10.0)) == [(dead, "nothing of an incomplete frame was received for 10 s")]
    frames.forget(dead)
    assert list(frames.overdue(18.0, 10.0)) == []
    [(late, _)] = frames.overdue(19.0, 10.0)
    assert late is slow
    frames.forget(slow)


def test_paused_time_does_not_count(frames: PartialFrames) -> None:
    first, second = Peer(), Peer()
    frames.note(first, LIMIT, LIMIT, 0.0, begins=True)
    frames.note(second, LIMIT, LIMIT, 0.0, begins=True)
    for now in range(1, 10):
        first.received += now
        assert list(frames.overdue(float(now), 10.0)) == []
    [(late, reason)] = frames.overdue(10.0, 10.0)
    assert late is first
    assert "while other connections wait for memory" in reason
    frames.forget(first)
    assert list(frames.overdue(19.0, 10.0)) == []
    [(late, _)] = frames.overdue(20.0, 10.0)
    assert late is second
    frames.forget(second)
