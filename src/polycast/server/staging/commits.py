"""Commits: staged rows become one batch of the log.

A batch is in one group of the log, together with its batch id: all of it or nothing. After a crash before that
group is durable, nothing is published and the stages are still there. After a crash later, the log has the id, and
a repeated commit publishes nothing. Stages are dropped when their batch is durable.

Threads read frames and prepare batches, in turns: round robin over identities and connections. Meanwhile the
connection is not read, and its later events wait.

A small batch is published like a burst. A large batch would overflow the queues of its subscribers, so they read
it from the log, each at its own pace.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from polycast.dialects.guard import Guard
from polycast.log.batch_ids import COUNT_MISMATCH
from polycast.log.log import NAMES_PER_MESSAGE, Log
from polycast.log.read.work import Work
from polycast.log.times import to_micros
from polycast.log.write.bulk import Bulk
from polycast.model import Abort, Ack, BatchKey, Commit, Limits, Stage
from polycast.server.dispatch.acks import Acks
from polycast.server.dispatch.dispatcher import Dispatcher
from polycast.server.dispatch.publish_handler import PublishHandler, count_in
from polycast.server.dispatch.publisher import Published, Publisher
from polycast.server.dispatch.refusals import FORBIDDEN, Refusals
from polycast.server.io.connection import Connection
from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.replay.reader_pool import THREADS, ReaderPool
from polycast.server.replay.replays import Replays
from polycast.server.staging.arrow_frames import StageError, read_frame
from polycast.server.staging.batch import LIVE_BYTES, live_size, prepare
from polycast.server.staging.shared import LoadedRows, SharedStages
from polycast.server.staging.stages import Staged, Stages

log = logging.getLogger("polycast.stages")

TOPICS_PER_STEP = 2_000
"""Topics whose rights one step of work checks."""
STAGING = "stage or commit"
"""The reason under which refused stages and commits are counted."""


class Commits:
    def __init__(
        self,
        log: Log,
        stages: Stages,
        limits: Limits,
        dispatcher: Dispatcher,
        publishing: PublishHandler,
        publisher: Publisher,
        acks: Acks,
        refusals: Refusals,
        budget: MemoryBudget,
        replays: Replays,
        forwards: bool,
        shared: SharedStages | None = None,
    ) -> None:
        """`shared`: in a cluster, the stages of all nodes."""
        self._log = log
        self.stages = stages
        self._limits = limits
        self._dispatcher = dispatcher
        self._publishing = publishing
        self._publisher = publisher
        self._acks = acks
        self._refusals = refusals
        self._budget = budget
        self._replays = replays
        self._shared = shared
        self._forwards = forwards
        """Whether messages are published under other names as well. Bulk rows cannot be."""
        self._under_way: dict[BatchKey, asyncio.Event] = {}
        """Batches with a commit in progress."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool = ReaderPool(0, 0.0, ThreadPoolExecutor(THREADS, "staging"))
        """Threads of its own, so that staging does not wait for reads of the log."""

    # -- events of connections ----------------------------------------------------------------------------

    def handle(self, connection: Connection, event: Stage | Commit | Abort, now: float) -> None:
        if not connection.guard.may_publish_anything:
            self._deny(connection, event, StageError(403, FORBIDDEN))
            return
        if isinstance(event, Abort):
            self.stages.drop(event.batch, event.names)
            if self._shared:
                self._shared.drop(event.batch, event.names)
            self._reply(connection, event.ack)
            return
        self._dispatcher.suspend(connection)
        work = self._stage(connection, event) if isinstance(event, Stage) else self._commit(connection, event)
        task = asyncio.get_running_loop().create_task(self._run(connection, event, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def expire(self) -> None:
        self.stages.expire(but=self._under_way)
        if self._shared:
            self._shared.expire()

    async def stop(self) -> None:
        """Cancels stages and commits in progress; they publish nothing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.stop()
        await asyncio.get_running_loop().run_in_executor(None, self.stages.stop)

    async def _run(self, connection: Connection, event: Stage | Commit, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except StageError as error:
            self._deny(connection, event, error)
        except Exception as error:
            log.exception("%s: a stage or commit failed", connection)
            self._reply(connection, event.to_error(500, f"{type(error).__name__}; see the broker's stderr"))
        self._dispatcher.resume(connection)

    async def _stage(self, connection: Connection, event: Stage) -> None:
        """A refused frame drops its whole stage: part of a stage is useless."""
        staged: Staged | None = None
        try:
            staged, size = self.stages.begin(event)
            async with staged.turn:
                parts = await self._read(connection, event, staged, size)
                before = staged.rows
                rows = self.stages.add(event, staged, parts)
                if self._shared:
                    staged.parts.clear()
                    await self._shared.store(event, before, parts)
                else:
                    await self.stages.store(event, staged, before)
        except StageError:
            if self._shared and not (staged and staged.gone):
                self._shared.drop(event.batch, (event.name,))
            if staged:
                self.stages.abandon(event, staged)
            raise
        self._reply(connection, event.to_ack(rows))
        self._budget.charge(connection)

    async def _read(self, connection: Connection, event: Stage, staged: Staged, size: int) -> list[pa.RecordBatch]:
        """`size`: the memory reserved for the frame until it is read."""
        try:
            work = _read_allowed(connection.guard, event, staged.rows, self._limits)
            return await self._pool.read(connection, work)
        finally:
            self.stages.release(event.batch.owner, size)

    # -- commits -----------------------------------------------------------------------------------------

    async def _commit(self, connection: Connection, event: Commit) -> None:
        """Runs one commit at a time for each batch id."""
        while other := self._under_way.get(event.batch):
            await other.wait()
        self._under_way[event.batch] = asyncio.Event()
        try:
            if self._is_known(connection, event):
                return
            if self._shared:
                await self._publish_shared(connection, event, self._shared)
            else:
                await self._publish_held(connection, event, self.stages.hold(event))
        finally:
            self._under_way.pop(event.batch).set()

    def _is_known(self, connection: Connection, event: Commit) -> bool:
        """Acknowledges a repeated commit, which publishes nothing. Refuses one with another number of rows."""
        known = self._log.batches.find(event.batch, to_micros(time.time()))
        if known is None:
            return False
        if event.count is not None and event.count != known.count:
            raise StageError(422, COUNT_MISMATCH % known.mismatch(event.batch, event.count))
        self._finish(connection, event, known.first, known.count)
        return True

    async def _publish_shared(self, connection: Connection, event: Commit, shared: SharedStages) -> None:
        """This node may be behind another one, which has published the batch: its stages are gone then."""
        try:
            loaded = await shared.load(event)
        except StageError:
            if self._is_known(connection, event):
                return
            raise
        await self._publish(connection, event, loaded)

    async def _publish_held(self, connection: Connection, event: Commit, held: list[Staged]) -> None:
        """The memory of published rows counts until they are durable."""
        try:
            parts = [part for staged in held for part in staged.parts]
            await self._publish(connection, event, LoadedRows(parts, [], sum(staged.size for staged in held)))
        finally:
            if size := self.stages.unhold(held):
                self._acks.when_durable(lambda _: self.stages.release(event.batch.owner, size))

    async def _publish(self, connection: Connection, event: Commit, loaded: LoadedRows) -> None:
        parts, frames, size = loaded
        if not any(part.num_rows for part in parts):
            self.stages.drop(event.batch)
            self._reply(connection, event.to_ack(0))
            return
        dialect, source = connection.listener.role.dialect, connection.name.encode()
        work = prepare(parts, dialect, source, self._forwards, self.stages.settings.batch_topics, frames)
        batch = await self._pool.read(connection, work)
        del parts, loaded
        if not self._shared:
            await self._make_room(len(batch) if isinstance(batch, Bulk) else NAMES_PER_MESSAGE * len(batch))
        if self._dispatcher.draining or self._is_known(connection, event):
            return
        _check_rights(connection.guard, batch.names if isinstance(batch, Bulk) else batch.topics)
        then = partial(self._applied, connection, event)
        if isinstance(batch, Bulk):
            self._publishing.publish_bulk(connection, batch, size, event.batch, then)
        else:
            if live_size(batch) > LIVE_BYTES:
                self._replays.spill_audience(set(batch.topics), links=False)
            self._publishing.charge(connection, len(batch), len(batch.block))
            self._publisher.publish(batch, connection.subscriber, connection.name, time.time(), event.batch, then)
        self._budget.charge(connection)

    def _applied(self, connection: Connection, event: Commit, published: Published) -> None:
        applied = published.applied
        assert applied
        if applied.known:
            self._finish(connection, event, applied.known.first, applied.known.count)
            return
        count_in(connection, published.accepted)
        self._finish(connection, event, applied.first, applied.proposal.messages)

    async def _make_room(self, count: int) -> None:
        """Waits until this many offsets are reserved; assigns none."""
        loop = asyncio.get_running_loop()
        while not self._log.has_offsets(count):
            made: asyncio.Future[str] = loop.create_future()
            self._log.reserve_offsets(count, partial(_resolve, made))
            if reason := await made:
                raise StageError(500, f"not stored: {reason}")

    # -- replies -----------------------------------------------------------------------------------------

    def _finish(self, connection: Connection, event: Commit, first: int, count: int) -> None:
        """Acknowledges the commit and drops the stages when the batch is durable.

        If the batch does not become durable, the stages stay for another commit.
        """
        self._acks.when_durable(lambda reason: None if reason else self.stages.drop(event.batch))
        if connection.subscriber.owner is None:
            self._acks.forget(connection)
            return
        self._acks.note(connection, first, count)
        self._acks.acknowledge(connection, Ack(event.to_ack(count), event.to_failure))

    def _deny(self, connection: Connection, event: Stage | Commit | Abort, error: StageError) -> None:
        self._refusals.refuse(connection, FORBIDDEN if error.code == 403 else STAGING)
        self._reply(connection, event.to_error(error.code, str(error)))

    def _reply(self, connection: Connection, data: bytes) -> None:
        """Sends the reply after all earlier ones."""
        if connection.subscriber.owner is not None:
            self._acks.reply(connection, data)


def _read_allowed(guard: Guard, event: Stage, before: int, limits: Limits) -> Work[list[pa.RecordBatch]]:
    """The rows of a frame. Raises StageError if the publisher may not publish to one of the topics."""
    parts = yield from read_frame(event, before, limits)
    for part in parts if guard.restricted else ():
        topics = part["topic"].unique().cast(pa.binary())
        for start in range(0, len(topics), TOPICS_PER_STEP):
            if not all(map(guard.may_publish, topics.slice(start, TOPICS_PER_STEP).to_pylist())):
                raise StageError(403, FORBIDDEN)
            yield
    return parts


def _check_rights(guard: Guard, topics: Iterable[bytes]) -> None:
    """Checks the rights again: rows may wait long for their commit. The connection may have ended."""
    if not guard.refresh() or (guard.restricted and not all(map(guard.may_publish, topics))):
        raise StageError(403, FORBIDDEN)


def _resolve(made: asyncio.Future[str], reason: str) -> None:
    if not made.done():
        made.set_result(reason)
