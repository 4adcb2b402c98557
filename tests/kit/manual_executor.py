"""An executor whose turns a test runs one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from polycast.log.read.work import Work
from polycast.server.replay.reader_pool import TURN_SECONDS


class ManualExecutor(Executor):
    """`turn` runs one turn of one thread. The clock stands still unless work moves it."""

    def __init__(self) -> None:
        self.turns: deque[Callable[[], None]] = deque()
        self.now = 0.0
        self.done: list[str] = []

    def submit(self, act: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = act(*args, **more)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.turns.append(run)
        return future

    async def turn(self) -> None:
        self.turns.popleft()()
        for _ in range(5):  # for the callbacks of the future in the event loop
            await asyncio.sleep(0)

    async def finish(self) -> int:
        count = 0
        while self.turns:
            await self.turn()
            count += 1
        return count

    def work(self, name: str, turns: int) -> Work[str]:
        """Takes this many turns."""
        try:
            for _ in range(turns - 1):
                self.now += TURN_SECONDS
                yield
            self.done.append(name)
            return name
        finally:
            self.done.append(f"{name} closed")
