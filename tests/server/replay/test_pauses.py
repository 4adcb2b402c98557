"""Pauses of replays: each ends at its time, or when the connection has room or closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kit.wire import GUARD_SECONDS
from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.replay.pauses import Pauses

LONG = 10 * GUARD_SECONDS


def play(act: Any) -> None:
    asyncio.run(asyncio.wait_for(act(), GUARD_SECONDS))


def test_a_pause_ends_at_its_time() -> None:
    play(lambda: Pauses().wait(object(), 0.001))  # type: ignore[arg-type]


@pytest.mark.parametrize("both", [False, True])
def test_a_pause_ends_when_the_connection_has_room(both: bool) -> None:
    async def act() -> None:
        one: Any = object()
        other: Any = object()
        pauses, budget = Pauses(), MemoryBudget(1)
        budget.on_caught_up = pauses.end
        waits = [asyncio.create_task(pauses.wait(connection, LONG)) for connection in (one, one, other)]
        await asyncio.sleep(0)
        budget.fell_behind(one)
        assert not any(wait.done() for wait in waits)
        budget.caught_up(one)
        await asyncio.gather(*waits[:2])
        assert not waits[2].done()
        pauses.end_all() if both else pauses.end(other)
        await waits[2]
        pauses.end(one)  # nobody waits
        assert not pauses._waiting

    play(act)


def test_a_cancelled_pause_is_forgotten() -> None:
    async def act() -> None:
        pauses = Pauses()
        wait = asyncio.create_task(pauses.wait(object(), LONG))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        assert not pauses._waiting

    play(act)
