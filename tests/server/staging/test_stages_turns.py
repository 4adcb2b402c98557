"""Staging takes turns: an identity that stages much does not delay the others. Turns are counted, not timed."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from itertools import count
from typing import Any
from unittest.mock import Mock

import pyarrow as pa

from kit.manual_executor import ManualExecutor
from kit.staged import numbered, to_frame, to_stream
from polycast.dialects.guard import Guard
from polycast.dialects.hermod.encoders import to_error, to_ok
from polycast.dialects.hermod.settings import HermodSettings
from polycast.model import BatchKey, Limits, Stage
from polycast.server.replay.reader_pool import ReaderPool
from polycast.server.staging.commits import Commits
from polycast.server.staging.stages import Stages

ROW = pa.record_batch({"topic": pa.array(["jobs"]), "payload": pa.array([b""], pa.binary())})


def connection_of(identity: str) -> Any:
    guard = Guard()
    guard.identity = identity
    return Mock(guard=guard)


def written(*frame: object) -> Future[None]:
    """A disk that takes no time."""
    future: Future[None] = Future()
    future.set_result(None)
    return future


def test_an_identity_does_not_wait_for_all_frames_of_another() -> None:
    """Frames with very many record batches take many turns."""

    async def flood() -> tuple[int, list[str]]:
        executor, seconds = ManualExecutor(), count()
        acknowledged: list[str] = []
        acks = Mock()
        acks.reply = lambda connection, data: acknowledged.append(connection.guard.identity)
        more = {
            name: Mock() for name in ("dispatcher", "publishing", "publisher", "refusals", "budget", "replays")
        }
        stages = Stages(HermodSettings(), Mock(append=written))
        commits = Commits(Mock(), stages, Limits(), acks=acks, forwards=False, **more)
        commits._pool = ReaderPool(0, 0.0, executor, lambda: next(seconds))
        for identity, rows in [*[("alice", to_stream(*[ROW] * 100))] * 20, ("bob", to_frame(numbered("t", 3)))]:
            connection = connection_of(identity)
            batch = BatchKey(identity, f"{id(connection)}")
            commits.handle(connection, Stage(batch, "s", rows, "", 0, to_ok, to_error), 0.0)
        await asyncio.sleep(0)
        turns = 0
        while "bob" not in acknowledged:
            await executor.turn()
            turns += 1
        before = list(acknowledged)
        await executor.finish()
        assert len(acknowledged) == 21
        return turns, before

    turns, acknowledged = asyncio.run(flood())
    assert acknowledged == ["bob"]
    assert turns < 10
