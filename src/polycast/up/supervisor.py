"""Keeps all parts going, and stops them in order.

The broker is started first; the others as soon as it is ready for the first time, and from then on each lives its
own life. On a stop the others are asked first: what they still have to say, the broker hears. Whoever does not end
in time is killed, with all that it started.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from polycast.address import Address, parse_address
from polycast.errors import StartError
from polycast.up.child import HINT, Child, to_reason
from polycast.up.life import State
from polycast.up.parts import Part, to_console

READY = ("ready", "running")
"""What a part says when it is at work."""
OTHERS_SECONDS = 4.0
"""How long Spark and the demo may take to stop."""
BROKER_SECONDS = 5.5
"""How long the broker may take, after them."""
ONE_SIGNAL_SECONDS = 0.2


class Report(Protocol):
    """Who is told what happens."""

    def opened(self, console: str) -> None:
        """The broker is ready; that is the console's address, if there is one."""

    def changed(self, part: Part) -> None:
        """Its state."""

    def heard(self, part: Part, line: str) -> None:
        """On its stdout."""

    def logged(self, part: Part, line: str) -> None:
        """On its stderr."""


class Supervisor:
    def __init__(self, parts: Sequence[Part], report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        self.broker, *self.others = parts
        self.told: dict[str, list[Address]] = {}
        """Where the broker listens, or did when it was last ready."""
        self._listening: dict[str, list[Address]] = {}
        """What it has said of that since it was started."""
        self._report = report
        self._clock = clock
        self._children: dict[str, Child] = {}
        self._stop = asyncio.Event()
        self._asked = 0.0
        self._up = asyncio.Event()
        """The broker was ready, once."""

    @property
    def parts(self) -> list[Part]:
        return [self.broker, *self.others]

    async def run(self) -> None:
        """Until `stop`. Raises StartError where the broker cannot be started at all."""
        broker = asyncio.create_task(self._keep(self.broker))
        others = [asyncio.create_task(self._follow(part)) for part in self.others]
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait([broker, stop], return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()
        await self._end(others, self.others, OTHERS_SECONDS)
        await self._end([broker], [self.broker], BROKER_SECONDS)
        await asyncio.gather(stop, broker, *others)
        if self.broker.life.state is State.FAILED:
            message, _, hint = self.broker.life.reason.partition(f"\n{HINT}")
            raise StartError(message, hint)

    def stop(self) -> None:
        """A second time, all are killed at once. Some tools signal a process and its group: that is once."""
        if not self._stop.is_set():
            self._asked = self._clock()
            self._stop.set()
        elif self._clock() - self._asked > ONE_SIGNAL_SECONDS:
            for child in self._children.values():
                child.kill()

    def child(self, part: Part) -> Child | None:
        return self._children.get(part.name)

    # -- one part ----------------------------------------------------------------------------------------

    async def _follow(self, part: Part) -> None:
        """Once the broker is there."""
        await _first(self._up, self._stop)
        if self._stop.is_set():
            return
        if reason := part.why_not(self.told):
            self._change(part, lambda now: part.life.leave_out(now, reason))
            return
        await self._keep(part)

    async def _keep(self, part: Part) -> None:
        while not self._stop.is_set():
            self._change(part, part.life.begin)
            code, reason = await self._run(part)
            if self._stop.is_set():
                self._change(part, part.life.stop)
                return
            self._change(part, partial(_end_of, part, code, reason))
            if part.life.state is not State.RESTING:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), part.life.due - self._clock())

    async def _run(self, part: Part) -> tuple[int, str]:
        """One process, to its end."""
        child = Child(lambda line: self._hear(part, line), lambda line: self._report.logged(part, line))
        self._children[part.name] = child
        if part is self.broker:
            self._listening = {}
        code = await child.run(part.module, part.arguments(self.told), part.tie, part.environment(os.environ))
        return code, to_reason(code, child.last_words)

    def _hear(self, part: Part, line: str) -> None:
        if part is self.broker and line.startswith("listening "):
            _, name, address = line.split(" ", 2)
            self._listening.setdefault(name, []).append(parse_address(address))
        self._report.heard(part, line)
        if line in READY and part.life.state is State.STARTING:
            if part is self.broker:
                self.told = self._listening
            self._change(part, part.life.ready)
            if part is self.broker:
                self._report.opened(to_console(self.told))
                self._up.set()

    def _change(self, part: Part, act: Callable[[float], None]) -> None:
        act(self._clock())
        self._report.changed(part)

    # -- the end -----------------------------------------------------------------------------------------

    async def _end(self, tasks: Iterable[asyncio.Task[None]], parts: Iterable[Part], seconds: float) -> None:
        waiting = [task for task in tasks if not task.done()]
        children = [child for part in parts if (child := self._children.get(part.name))]
        for child in children:
            child.ask_to_stop()
        if not waiting:
            return
        _, late = await asyncio.wait(waiting, timeout=seconds)
        for child in children if late else ():
            child.kill()
        if late:
            await asyncio.wait(late)


def _end_of(part: Part, code: int, reason: str, now: float) -> None:
    part.life.end(now, code, reason)


async def _first(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
