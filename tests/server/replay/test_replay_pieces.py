"""How much a replay queues at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kit.wire import GUARD_SECONDS
from log.log_builder import LogBuilder
from polycast.log.read.seek import rows_at
from polycast.log.read.work import Work, finish
from polycast.model import Burst, Format
from polycast.server.replay import start_replay
from polycast.server.replay.pauses import Pauses
from polycast.server.replay.read_ahead import ROWS
from polycast.server.replay.replay import AHEAD_BYTES, LEAST_AHEAD_BYTES
from polycast.server.replay.rows_budget import FIRST_BYTES, TURN_SECONDS, RowsBudget
from polycast.server.replay.start_replay import LastMessageReplay


async def call(connection: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def read(connection: Any, work: Work[Any]) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(finish(work))
    return future


class StubConnection:
    def __init__(self, **parts: Any) -> None:
        self.__dict__ |= parts


class Recorded(LastMessageReplay):
    queued = 0
    share = 100 * AHEAD_BYTES

    def __init__(self, folder: Path | None = None, next_offset: int = 0) -> None:
        listener = SimpleNamespace(queue_bytes=100 * AHEAD_BYTES, role=SimpleNamespace(echo=True))
        subscriber = SimpleNamespace(link=False, committed=False)
        connection: Any = StubConnection(
            listener=listener,
            subscriber=subscriber,
            guard=SimpleNamespace(identity=""),
            closing=False,
            queued=lambda: self.queued,
        )
        log = SimpleNamespace(
            folder=folder,
            next=next_offset,
            durable_next=next_offset,
            tail_first=next_offset,
            lost=None,
            hurry=lambda: None,
        )
        readers = SimpleNamespace(read_rows=read)
        context: Any = SimpleNamespace(
            log=log,
            stopped=False,
            read_rows=call,
            readers=readers,
            index=SimpleNamespace(position=lambda offset: None),
            rows_budget=RowsBudget(),
            pauses=Pauses(),
            queue_share=lambda: self.share,
        )
        super().__init__(context, connection)
        self.sizes: list[int] = []

    def push_burst(self, burst: Burst, start: int, stop: int) -> None:
        self.sizes.append(sum(burst.ends[start:stop]) - sum(burst.starts[start:stop]))


def test_large_messages_behind_many_small_ones(tmp_path: Path) -> None:
    """A committed batch may have both: pieces go by their bytes, not by an average."""
    builder = LogBuilder(tmp_path)
    small = builder.make(2000, b"", ["a"])
    builder.next = 2000
    large = builder.make(8, bytes(AHEAD_BYTES // 2), ["a"])
    replay = Recorded()
    assert asyncio.run(replay.push(pa.concat_batches([small, large]))) == 2008
    assert sum(replay.sizes) == 4 * AHEAD_BYTES
    assert max(replay.sizes) <= AHEAD_BYTES


def test_many_replays_queue_less_each() -> None:
    replay = Recorded()
    sizes = []
    for replay.share in (100 * AHEAD_BYTES, 2 * AHEAD_BYTES, 0):
        sizes.append(replay.piece_bytes)
    assert sizes == [AHEAD_BYTES, AHEAD_BYTES // 2, LEAST_AHEAD_BYTES]


def test_the_same_from_memory() -> None:
    rows = [(b"a", bytes(size), Format.BYTES) for size in [0] * 2000 + [AHEAD_BYTES // 2] * 8]
    burst, replay = Burst.of("hermod", rows), Recorded()
    burst.offset = replay.offset = 5
    queued = []
    while replay.offset < 2013:
        queued.append(replay._push_more(burst, 0))
    assert sum(replay.sizes) == sum(queued) == 4 * AHEAD_BYTES
    assert max(replay.sizes) <= AHEAD_BYTES


def test_a_slow_subscriber_keeps_no_group_in_memory(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(ROWS + 10, topics=["a"])
    replay = Recorded(tmp_path, ROWS + 10)
    replay.offset = 0

    async def stall() -> None:
        await replay._push_from_disk()
        assert replay._rows._ahead and replay._rows._reader
        replay.queued = 2 * AHEAD_BYTES
        following = asyncio.create_task(replay._push_from_disk())
        while replay._rows._ahead or replay._rows._reader:
            await asyncio.sleep(0.01)
        replay.queued = 0
        await asyncio.wait_for(following, GUARD_SECONDS)

    asyncio.run(asyncio.wait_for(stall(), GUARD_SECONDS))
    assert replay.offset == ROWS + 10
    assert len(replay.sizes) == 2


def test_rows_are_read_ahead_only_for_a_brisk_subscriber_and_before_those_in_memory(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(3 * ROWS, topics=["a"])
    replay = Recorded(tmp_path, 3 * ROWS)

    async def push(slow: bool, tail_first: int) -> bool:
        replay.offset = 0
        replay.log.tail_first = tail_first  # type: ignore[misc]
        replay.queued = 2 * AHEAD_BYTES if slow else 0
        pushing = asyncio.create_task(replay._push_from_disk())
        while slow and replay._brisk:
            await asyncio.sleep(0.001)
        replay.queued = 0
        await pushing
        ahead = replay._rows._ahead is not None
        await replay._rows.close()
        return ahead

    async def test() -> None:
        assert await push(slow=False, tail_first=3 * ROWS)
        assert not await push(slow=False, tail_first=ROWS)
        assert not await push(slow=True, tail_first=3 * ROWS)

    asyncio.run(asyncio.wait_for(test(), GUARD_SECONDS))


def test_nothing_is_held_while_the_last_messages_in_memory_wait(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(ROWS, topics=["a"])
    replay = Recorded(tmp_path, ROWS)

    async def find_start() -> int:
        replay._rows.begin(0, ROWS)
        replay.queued = 2 * AHEAD_BYTES
        return ROWS

    async def test() -> None:
        replay.find_start = find_start  # type: ignore[method-assign]
        running = asyncio.create_task(replay.run())
        while not replay.queued or replay._rows._reader:
            await asyncio.sleep(0)
        replay.context.stopped = True
        await running

    asyncio.run(asyncio.wait_for(test(), GUARD_SECONDS))


def test_nor_the_last_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read again when the subscriber has received what is queued."""
    LogBuilder(tmp_path).segment(5, 5, topics=["a"], payload=bytes(AHEAD_BYTES // 2))
    replay = Recorded(tmp_path, 10)
    begun = []

    def begin(folder: Path, offsets: list[int], **more: Any) -> Any:
        begun.append(offsets)
        return rows_at(folder, offsets, **more)

    async def stall() -> None:
        following = asyncio.create_task(replay._push_old(list(range(10))))
        while not replay.sizes or replay.rows_budget.held:
            replay.queued = 2 * AHEAD_BYTES if replay.sizes else 0
            await asyncio.sleep(0.001)
        replay.queued = 0
        await following

    monkeypatch.setattr(start_replay, "rows_at", begin)
    asyncio.run(asyncio.wait_for(stall(), GUARD_SECONDS))
    assert len(begun) == 2
    assert begun[1] == list(range(10))[-len(begun[1]) :]
    assert sum(replay.sizes) == 5 * AHEAD_BYTES


def test_rows_are_given_back_after_a_turn_if_others_wait_for_the_memory(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(3 * ROWS, topics=["a"])
    replay, other = Recorded(tmp_path, 3 * ROWS), Recorded(tmp_path, 3 * ROWS)
    now = [0.0]
    budget = replay.rows_budget = other.rows_budget = RowsBudget(FIRST_BYTES, lambda: now[0])
    replay.offset = other.offset = 0

    async def test() -> None:
        await replay._push_from_disk()
        assert budget.held
        waiting = asyncio.create_task(other._push_from_disk())
        while not budget.is_contended:
            await asyncio.sleep(0)
        await replay._push_from_disk()
        assert replay._rows._reader
        assert not replay._rows._ahead
        now[0] = TURN_SECONDS
        await replay._push_from_disk()
        assert not replay._rows._reader
        assert replay.offset == 3 * ROWS
        await waiting
        assert other.offset == ROWS
        await other._give_back()
        assert not budget.held

    asyncio.run(asyncio.wait_for(test(), GUARD_SECONDS))


def test_last_messages_wait_for_the_memory_and_give_it_back(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(5, 5, topics=["a"], payload=bytes(AHEAD_BYTES // 2))
    replay, other = Recorded(tmp_path, 10), Recorded(tmp_path, 10)
    budget = replay.rows_budget = other.rows_budget = RowsBudget(FIRST_BYTES)

    async def test() -> None:
        await budget.acquire(other)
        pushing = asyncio.create_task(replay._push_old(list(range(10))))
        while not budget.is_contended:
            await asyncio.sleep(0)
        assert not replay.sizes
        budget.release(other)
        await pushing
        assert sum(replay.sizes) == 5 * AHEAD_BYTES
        assert not budget.held

    asyncio.run(asyncio.wait_for(test(), GUARD_SECONDS))


def test_a_closed_connection_waits_for_nothing(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(ROWS, topics=["a"])
    replay = Recorded(tmp_path, ROWS)
    replay.offset = 0

    async def test() -> None:
        replay.connection.closing = True  # type: ignore[misc]
        await replay._push_from_disk()
        assert not replay._rows._reader
        assert not replay.sizes
        await replay._give_back()

    asyncio.run(asyncio.wait_for(test(), GUARD_SECONDS))


def test_a_turn_ends_between_two_pieces_of_what_was_read(tmp_path: Path) -> None:
    """A subscriber that takes a small piece just in time, again and again, does not keep the rows."""
    pieces = 100
    LogBuilder(tmp_path).segment(pieces, topics=["a"], payload=bytes(LEAST_AHEAD_BYTES))
    replay = Recorded(tmp_path, pieces)
    replay.offset = replay.share = 0
    replay.rows_budget = budget = RowsBudget(FIRST_BYTES, lambda: len(replay.sizes) * TURN_SECONDS / 2)
    other: Any = StubConnection(connection=replay.connection)

    async def act() -> None:
        await budget.acquire(replay)
        waiting = asyncio.create_task(budget.acquire(other))
        await replay._push_from_disk()
        await waiting
        assert (replay.offset, len(replay.sizes)) == (2, 2)
        budget.release(other)
        replay.share = 100 * AHEAD_BYTES  # nothing waits any more
        while replay.offset < pieces:
            await replay._push_from_disk()

    asyncio.run(asyncio.wait_for(act(), GUARD_SECONDS))
    assert sum(replay.sizes) == pieces * LEAST_AHEAD_BYTES
