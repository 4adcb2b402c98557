"""The threads that read the log, and who is served by them.

All reading of the log beside the event loop goes through here: requests, and the replays of subscribers. It is
done in turns: a thread works for one connection for `TURN_SECONDS`, then for the next one. What a turn does not
finish goes on in the connection's next turn. A request fails that comes while too many of its connection wait, or
that takes too long. The reads of a connection that closes are cancelled; one that a thread has just now ends
with the piece of work that it is at.
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
from polycast.server.replay.turns import Limit, Line, Lines, Owner, Read

T = TypeVar("T")

Clock = Callable[[], float]

THREADS = 2
TURN_SECONDS = 0.02
"""A turn ends with the piece of work during which this is reached."""
REQUESTS_AT_MOST = 4096
"""Of all connections. Past that a connection may have one waiting."""


class Readers:
    def __init__(
        self, reads: int, seconds: float, executor: Executor | None = None, clock: Clock = time.monotonic
    ) -> None:
        self.limit(reads, seconds)
        self._executor = executor or ThreadPoolExecutor(THREADS, "log-reader")
        self._clock = clock
        self._lines = Lines()
        self._running = 0
        self.waiting = 0
        """Requests without a response."""
        self.refused = self.expired = self.cancelled = 0

    def limit(self, reads: int, seconds: float) -> None:
        """So many requests may wait on one connection, and each of them may take so long; 0: any time."""
        self._reads = reads
        self._seconds = seconds

    def admit(self, owner: Owner) -> None:
        """Raises RouteError where no other request of the connection may wait."""
        line = self._lines.of(owner)
        waiting = line.requests if line else 0
        most = self._reads if self.waiting < REQUESTS_AT_MOST else 1
        if waiting < most:
            return
        self.refused += 1
        raise RouteError(
            f"{requests.BUSY}: {waiting:,} reads of the log wait on this connection, the limit is {most:,} "
            "(limits.reads); send the next request after a response"
        )

    def request(self, owner: Owner, work: Work[T]) -> asyncio.Future[T]:
        """The result comes later; without one where the connection closes. Raises RouteError past the limits."""
        self.admit(owner)
        limit = Limit(self._seconds, self._clock() + self._seconds) if self._seconds else Limit(0)
        self.waiting += 1
        return self._put(owner, work, limit)

    def read(self, owner: Owner, work: Work[T]) -> asyncio.Future[T]:
        """For a subscription of the connection: without limits. It is cancelled when the connection closes."""
        return self._put(owner, work, None)

    def leave(self, owner: Owner) -> None:
        """The connection closes."""
        if line := self._lines.of(owner):
            self._end(line, list(line.reads), asyncio.CancelledError())

    async def stop(self) -> None:
        """No request is answered any more. Replays must have ended before."""
        self.abandon()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    def abandon(self) -> None:
        """Requests fail; the reads of subscriptions stay."""
        for line in self._lines:
            asked = [read for read in line.reads if read.limit is not None]
            self._end(line, asked, RouteError(f"{requests.GONE}: the broker stops"))

    # -- turns -------------------------------------------------------------------------------------------

    def _put(self, owner: Owner, work: Work[T], limit: Limit | None) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._lines.put(owner, Read(work, future, limit))
        self._go()
        return future

    def _go(self) -> None:
        loop = asyncio.get_running_loop()
        while self._running < THREADS and (line := self._lines.take()):
            self._running += 1
            turn = loop.run_in_executor(self._executor, take_turn, line.reads[0], self._clock)
            turn.add_done_callback(partial(self._after, line))

    def _after(self, line: Line, turn: asyncio.Future[tuple[bool, Any]]) -> None:
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
        self._lines.settle(line)
        self._go()

    # -- ends --------------------------------------------------------------------------------------------

    def _end(self, line: Line, reads: list[Read], error: BaseException) -> None:
        """Now, or for the one that a thread has, after its turn."""
        for read in reads:
            read.ended = error
            if not (line.running and read is line.reads[0]):
                self._remove(line, read, error)
        self._lines.settle(line)

    def _remove(self, line: Line, read: Read, error: BaseException | None, result: Any = None) -> None:
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
        "ask for less of it: a later `from` or `since`, or an exact topic"
    )


def take_turn(read: Read, clock: Clock) -> tuple[bool, Any]:
    """In a thread. Whether the work is done, and its result."""
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
