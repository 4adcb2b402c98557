"""The threads that read the log, shared by all connections in turns.

Requests and replays read the log here, not in the event loop. A thread works for one connection for
`TURN_SECONDS`, then for the next. An unfinished read continues in the next turn of its connection. A request fails
if too many requests of its connection wait, or if it takes too long. The reads of a closed connection are
cancelled; a read that a thread works on ends after its current step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from polycast.broker import requests
from polycast.log.read.work import Work
from polycast.server.dispatch.bodies import RouteError
from polycast.server.replay.read_queue import ConnectionReads, Limit, Owner, ReadQueue, ReadTask

T = TypeVar("T")

Clock = Callable[[], float]

THREADS = 2
TURN_SECONDS = 0.02
"""A turn ends with the step in which this time is reached."""
REQUESTS_AT_MOST = 4096
"""Waiting requests of all connections. Past this limit each connection may have one request waiting."""


class ReaderPool:
    def __init__(
        self, reads: int, seconds: float, executor: Executor | None = None, clock: Clock = time.monotonic
    ) -> None:
        self.limit(reads, seconds)
        self._executor = executor or ThreadPoolExecutor(THREADS, "log-reader")
        self._clock = clock
        self._lines = ReadQueue()
        self._running = 0
        self.waiting = 0
        """Requests without a response."""
        self.refused = self.expired = self.cancelled = 0

    def limit(self, reads: int, seconds: float) -> None:
        """`reads`: requests that may wait on one connection. `seconds`: the time limit of each; 0: none."""
        self._reads = reads
        self._seconds = seconds

    def admit(self, owner: Owner) -> None:
        """Raises RouteError if no further request of the connection may wait."""
        waiting = sum(line.requests for line in self._lines.of(owner))
        most = self._reads if self.waiting < REQUESTS_AT_MOST else 1
        if waiting < most:
            return
        self.refused += 1
        raise RouteError(
            f"{requests.BUSY}: {waiting:,} reads of the log wait on this connection, the limit is {most:,} "
            "(limits.reads); send the next request after a response"
        )

    def request(self, owner: Owner, work: Work[T]) -> asyncio.Future[T]:
        """The future is cancelled when the connection closes. Raises RouteError past the limits."""
        self.admit(owner)
        limit = Limit(self._seconds, self._clock() + self._seconds) if self._seconds else Limit(0)
        self.waiting += 1
        return self._put(owner, work, limit)

    def read(self, owner: Owner, work: Work[T]) -> asyncio.Future[T]:
        """For a replay: no limits. The future is cancelled when the connection closes."""
        return self._put(owner, work, None)

    def read_rows(self, owner: Owner, work: Work[T]) -> asyncio.Future[T]:
        """For a replay that has a share of the memory of all replays: other reads of its connection, and of its
        identity, do not delay it."""
        return self._put(owner, work, None, rows=True)

    def cancel(self, owner: Owner) -> None:
        """The connection closes."""
        for line in self._lines.of(owner):
            self._end(line, list(line.reads), asyncio.CancelledError())

    async def stop(self) -> None:
        """Fails all requests, and cancels all other reads."""
        self.fail_requests()
        for line in self._lines:
            self._end(line, list(line.reads), asyncio.CancelledError())
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    def fail_requests(self) -> None:
        """The reads of replays stay."""
        for line in self._lines:
            reads = [read for read in line.reads if read.limit is not None]
            self._end(line, reads, RouteError(f"{requests.GONE}: the broker stops"))

    # -- turns -------------------------------------------------------------------------------------------

    def _put(self, owner: Owner, work: Work[T], limit: Limit | None, rows: bool = False) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._lines.put(owner, ReadTask(work, future, limit), rows)
        self._go()
        return future

    def _go(self) -> None:
        loop = asyncio.get_running_loop()
        while self._running < THREADS and (line := self._lines.take()):
            self._running += 1
            turn = loop.run_in_executor(self._executor, take_turn, line.reads[0], self._clock)
            turn.add_done_callback(partial(self._after, line))

    def _after(self, line: ConnectionReads, turn: asyncio.Future[tuple[bool, Any]]) -> None:
        self._running -= 1
        line.running = False
        read = line.reads[0]
        error = read.ended or turn.exception()
        done, result = (True, None) if error else turn.result()
        if done:
            self._remove(line, read, error, result)
        elif read.limit is not None and self._clock() >= read.limit.until:
            self.expired += 1
            self._remove(line, read, _overdue(read.limit))
        self._lines.requeue(line)
        self._go()

    # -- ends --------------------------------------------------------------------------------------------

    def _end(self, line: ConnectionReads, reads: list[ReadTask], error: BaseException) -> None:
        """At once; a read that a thread works on, after its turn."""
        for read in reads:
            read.ended = error
            if not (line.running and read is line.reads[0]):
                self._remove(line, read, error)
        self._lines.requeue(line)

    def _remove(
        self, line: ConnectionReads, read: ReadTask, error: BaseException | None, result: Any = None
    ) -> None:
        line.reads.remove(read)
        read.work.close()
        if read.limit is not None:
            self.waiting -= 1
            self.cancelled += isinstance(error, asyncio.CancelledError)
        if read.future.done():
            return
        if error is None:
            read.future.set_result(result)
        elif isinstance(error, asyncio.CancelledError):
            read.future.cancel()
        else:
            read.future.set_exception(error)


def _overdue(limit: Limit) -> RouteError:
    return RouteError(
        f"{requests.TIMEOUT}: reading the log took longer than {limit.seconds:g} s (limits.read_seconds); "
        "read less of it: a later `from` or `since`, or an exact topic"
    )


def take_turn(read: ReadTask, clock: Clock) -> tuple[bool, Any]:
    """Runs in a thread. Returns whether the work is done, and its result."""
    until = clock() + TURN_SECONDS
    if read.limit is not None and clock() >= read.limit.until:
        return False, None
    while read.ended is None:
        try:
            next(read.work)
        except StopIteration as end:
            return True, end.value
        if clock() >= until:
            break
    return False, None
