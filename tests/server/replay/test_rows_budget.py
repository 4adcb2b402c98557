"""The memory for rows that replays have read: who gets a share of it, and when it is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kit.wire import GUARD_SECONDS
from polycast.dialects.guard import Guard
from polycast.server.replay import rows_budget
from polycast.server.replay.rows_budget import FIRST_BYTES, READS_A_TURN, TURN_SECONDS, RowsBudget

LIMIT = 4 * FIRST_BYTES


class Person:
    """A replay, and its connection."""

    def __init__(self, identity: str = "") -> None:
        self.connection: Any = self
        self.guard = Guard()
        self.guard.identity = identity


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.budget = RowsBudget(LIMIT, lambda: self.now)
        self.served: list[Person] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def acquire(self, *persons: Person) -> None:
        """They want a share, in this order."""
        for person in persons:
            self._tasks.append(asyncio.create_task(self._acquire(person)))
        await self.turn()

    async def _acquire(self, person: Person) -> None:
        await self.budget.acquire(person)
        self.served.append(person)

    async def release(self, person: Person) -> None:
        self.budget.release(person)
        await self.turn()

    async def turn(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)


def play(act: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await act(Rig())

    asyncio.run(asyncio.wait_for(run(), GUARD_SECONDS))


def test_past_the_limit_replays_wait_in_turn() -> None:
    async def act(rig: Rig) -> None:
        persons = [Person() for _ in range(7)]
        await rig.acquire(*persons)
        assert rig.served == persons[:4]
        assert rig.budget.held == LIMIT
        await rig.acquire(persons[0])  # has one already
        assert rig.served == [*persons[:4], persons[0]]
        for number in (2, 0, 1):
            await rig.release(persons[number])
        assert rig.served[5:] == persons[4:]
        assert not rig.budget.is_contended

    play(act)


def test_the_rows_that_were_read_count() -> None:
    async def act(rig: Rig) -> None:
        first, second, third = (Person() for _ in range(3))
        await rig.acquire(first)
        rig.budget.resize(first, LIMIT - FIRST_BYTES)
        await rig.acquire(second, third)
        assert rig.served == [first, second]
        rig.budget.resize(first, LIMIT // 4)
        await rig.turn()
        assert rig.served == [first, second, third]

    play(act)


def test_one_replay_reads_however_large_its_rows_are() -> None:
    async def act(rig: Rig) -> None:
        first, second = Person(), Person()
        await rig.acquire(first)
        rig.budget.resize(first, 3 * LIMIT)
        await rig.acquire(second)
        assert rig.served == [first]
        await rig.release(first)
        assert rig.served == [first, second]
        rig.budget.resize(second, 3 * LIMIT)

    play(act)


def test_an_identity_with_many_replays_has_one_turn_per_round() -> None:
    async def act(rig: Rig) -> None:
        holders = [Person("many") for _ in range(4)]
        many = [Person("many") for _ in range(50)]
        one = Person("one")
        await rig.acquire(*holders, *many, one)
        await rig.release(holders[0])
        await rig.release(holders[1])
        assert rig.served[4:] == [many[0], one]

    play(act)


def test_rows_are_read_ahead_only_where_no_other_replay_waits() -> None:
    async def act(rig: Rig) -> None:
        persons = [Person() for _ in range(5)]
        await rig.acquire(persons[0])
        assert rig.budget.has_room_for(persons[0], LIMIT)
        assert not rig.budget.has_room_for(persons[0], LIMIT + 1)
        await rig.acquire(*persons[1:])
        assert not rig.budget.has_room_for(persons[0], FIRST_BYTES)

    play(act)


@pytest.mark.parametrize("seconds", [0.001, 10 * TURN_SECONDS])
def test_a_turn_ends_while_others_wait_but_not_before_it_was_worth_the_read(seconds: float) -> None:
    async def act(rig: Rig) -> None:
        persons = [Person() for _ in range(5)]
        budget, first = rig.budget, persons[0]
        await rig.acquire(*persons[:4])
        rig.now = seconds
        budget.resize(first, FIRST_BYTES)
        rig.now += 1000
        assert not budget.is_turn_over(first)
        assert budget.to_patience(first, 0.25) == 0.25
        await rig.acquire(persons[4])
        assert budget.is_turn_over(first)
        assert budget.to_patience(first, 0.25) == (0.025 if seconds < 0.025 else 0.25)
        rig.now = seconds + max(TURN_SECONDS, READS_A_TURN * seconds) - 0.001
        budget.resize(first, FIRST_BYTES)  # the turn began with the first read
        assert not budget.is_turn_over(first)
        assert budget.to_patience(persons[4], 0.25) == 0.25  # has no rows

    play(act)


def test_replays_that_are_over_wait_no_longer() -> None:
    async def act(rig: Rig) -> None:
        persons = [Person() for _ in range(7)]
        await rig.acquire(*persons)
        for person in (persons[0], persons[4], persons[4], Person("other")):  # only the second one waits
            person.guard.identity = "of a token"
            rig.budget.leave(person)
        await rig.release(persons[0])
        assert rig.served == [*persons[:4], persons[5]]
        rig.budget.stop()
        assert not rig.budget.is_contended
        for person in persons:
            await rig.release(person)
        assert rig.served == [*persons[:4], persons[5]]
        assert not rig.budget.held

    play(act)


def test_the_memory_goes_back_to_the_system_when_no_replay_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_budget, "IDLE_SECONDS", 0)

    async def act(rig: Rig) -> None:
        returned = asyncio.Event()
        rig.budget.return_memory = returned.set
        first, second = Person(), Person()
        await rig.acquire(first, second)
        await rig.release(first)
        await rig.turn()
        assert not returned.is_set()
        rig.budget.release(second)
        await rig.acquire(first)  # in the same turn
        assert not returned.is_set()
        await rig.release(first)
        await returned.wait()

    play(act)
