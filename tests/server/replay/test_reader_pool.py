"""Reads of the log take turns: order, refusal, cancellation. Tests count turns instead of measuring time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kit.manual_executor import ManualExecutor
from polycast.dialects.guard import Guard
from polycast.log.read.work import once
from polycast.server.dispatch.bodies import RouteError
from polycast.server.replay import reader_pool
from polycast.server.replay.reader_pool import TURN_SECONDS, ReaderPool


class Person:
    """An owner of reads."""

    def __init__(self, identity: str = "") -> None:
        self.guard = Guard()
        self.guard.identity = identity


def play(
    act: Callable[[ManualExecutor, ReaderPool], Coroutine[Any, Any, None]], reads: int = 1000, seconds: float = 0
) -> None:
    async def run() -> None:
        executor = ManualExecutor()
        await act(executor, ReaderPool(reads, seconds, executor, lambda: executor.now))

    asyncio.run(run())


def test_an_owner_with_many_reads_has_one_turn_per_round() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        greedy, honest = Person(), Person()
        for number in range(150):
            readers.request(greedy, executor.work(f"greedy {number}", 10))
        response = readers.request(honest, executor.work("honest", 5))
        turns = 0
        while not response.done():
            await executor.turn()
            turns += 1
        assert turns <= 2 * 5 + 1
        assert response.result() == "honest"

    play(act)


def test_reads_of_one_connection_run_one_after_the_other() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        one = Person()
        responses = [readers.request(one, executor.work(str(number), 3)) for number in range(4)]
        assert len(executor.turns) == 1
        assert await executor.finish() == 12
        assert [response.result() for response in responses] == ["0", "1", "2", "3"]
        assert [name for name in executor.done if "closed" not in name] == ["0", "1", "2", "3"]

    play(act)


def test_identities_take_turns_before_their_connections() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        many, one = [Person("many") for _ in range(50)], Person("one")
        for person in many:
            readers.request(person, executor.work("many", 20))
        response = readers.request(one, executor.work("one", 5))
        turns = 0
        while not response.done():
            await executor.turn()
            turns += 1
        assert turns <= 3 * 5 + 2

    play(act)


@pytest.mark.parametrize("same", [True, False])
def test_rows_wait_for_no_requests_of_their_connection_or_identity(same: bool) -> None:
    """A replay has a share of the memory of all replays while it reads."""

    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        many = [Person("many") for _ in range(50)]
        for person in many:
            readers.request(person, executor.work("request", 100))
            readers.request(person, executor.work("waits", 100))
            readers.read(person, executor.work("position", 100))
        reader = many[0] if same else Person("many")
        rows = [readers.read_rows(reader, executor.work("rows", 1)) for _ in range(3)]
        turns = 0
        while not rows[-1].done():
            await executor.turn()
            turns += 1
        assert turns <= 4 * 3
        more = readers.read_rows(reader, executor.work("more", 1))
        for person in many:
            readers.cancel(person)
        assert more.cancelled() == same
        await executor.finish()

    play(act)


def test_reads_past_the_limit_are_refused_at_once() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        one, other = Person(), Person()
        for _ in range(3):
            readers.request(one, executor.work("one", 1))
        with pytest.raises(RouteError, match=r"Busy: 3 reads .* the limit is 3 \(limits.reads\)"):
            readers.request(one, executor.work("one", 1))
        readers.request(other, executor.work("other", 1))
        readers.read(one, once(lambda: None))
        assert (readers.waiting, readers.refused) == (4, 1)
        await executor.finish()
        assert readers.waiting == 0
        readers.request(one, executor.work("one", 1))
        await executor.finish()

    play(act, reads=3)


def test_past_the_total_limit_each_connection_may_queue_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_pool, "REQUESTS_AT_MOST", 5)

    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        greedy, honest = Person(), Person()
        for _ in range(5):
            readers.request(greedy, executor.work("greedy", 1))
        for person in (greedy, honest):
            if person is honest:
                readers.request(person, executor.work("honest", 1))
            with pytest.raises(RouteError, match="the limit is 1"):
                readers.request(person, executor.work("more", 1))
        await executor.finish()

    play(act)


def test_reads_of_a_closed_connection_are_cancelled() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        gone, here = Person(), Person()
        responses = [readers.request(gone, executor.work(f"gone {number}", 10)) for number in range(100)]
        replay = readers.read(gone, executor.work("replay", 2))
        await executor.turn()
        stays = readers.request(here, executor.work("here", 2))
        readers.cancel(gone)
        assert [response.cancelled() for response in responses] == [False] + [True] * 99
        assert replay.cancelled()
        assert await executor.finish() == 1 + 2
        assert responses[0].cancelled() and stays.result() == "here"
        assert executor.done == ["gone 0 closed", "here", "here closed"]
        assert (readers.waiting, readers.cancelled) == (0, 100)

    play(act)


def test_reads_are_cancelled_at_once_between_turns() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        first, second, gone = Person(), Person(), Person()
        readers.request(first, executor.work("first", 3))
        readers.request(second, executor.work("second", 3))
        response = readers.request(gone, executor.work("gone", 3))
        readers.cancel(gone)
        assert response.cancelled()
        assert await executor.finish() == 6
        readers.cancel(gone)

    play(act)


def test_reads_past_the_time_limit_fail() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        one = Person()
        long = readers.request(one, executor.work("long", 1000))
        behind = readers.request(one, executor.work("behind", 1))
        replay = readers.read(one, executor.work("replay", 100))
        turns = await executor.finish()
        assert turns == 10 + 1 + 100
        for response in (long, behind):
            with pytest.raises(RouteError, match=r"Timeout: .* longer than 0.19 s \(limits.read_seconds\)"):
                response.result()
        assert replay.result() == "replay"
        assert executor.done == ["long closed", "replay", "replay closed"]
        assert (readers.expired, readers.waiting) == (2, 0)

    play(act, seconds=9.5 * TURN_SECONDS)


def test_a_failure_is_that_of_its_read_alone() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        one = Person()
        bad = readers.request(one, once(lambda: 1 // 0))
        good = readers.request(one, once(lambda: 7))
        await executor.finish()
        assert isinstance(bad.exception(), ZeroDivisionError) and good.result() == 7

    play(act)


def test_a_stop_fails_requests_and_lets_replays_end() -> None:
    async def act(executor: ManualExecutor, readers: ReaderPool) -> None:
        one = Person()
        running = readers.request(one, executor.work("running", 50))
        waiting = readers.request(one, executor.work("waiting", 50))
        replay = readers.read(one, executor.work("replay", 2))
        await executor.turn()
        readers.fail_requests()
        assert await executor.finish() == 1 + 2
        for response in (running, waiting):
            assert str(response.exception()) == "Gone: the broker stops"
        assert replay.result() == "replay"
        assert readers.waiting == 0

    play(act)


def test_with_threads() -> None:
    async def run() -> None:
        readers = ReaderPool(1000, 0)
        people = [Person() for _ in range(5)]
        responses = [readers.request(person, once(pow, number, 2)) for number in range(20) for person in people]
        assert await asyncio.gather(*responses) == [number**2 for number in range(20) for _ in people]
        await readers.stop()

    asyncio.run(run())
