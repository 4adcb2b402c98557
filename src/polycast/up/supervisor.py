"""The supervisor: starts and restarts the parts, and stops them in order.

The servers of a cluster and the broker start first, the other parts when the broker is ready for the first time.
From then on each part restarts on its own. On stop the other parts end first, so that the broker receives their
last messages. A part that does not end in time is killed, with its process group."""

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
from polycast.up.lifecycle import PartState
from polycast.up.parts import Part, console_url

READY = ("ready", "running")
"""Lines that a part prints when it is ready."""
OTHERS_SECONDS = 4.0
"""Time limit for Spark and the demo to stop."""
BROKER_SECONDS = 5.5
"""Time limit for the broker to stop, after the others."""
ONE_SIGNAL_SECONDS = 0.2


class Observer(Protocol):
    def broker_ready(self, console: str) -> None:
        """`console`: URL of the console, or empty."""

    def state_changed(self, part: Part) -> None: ...

    def stdout_line(self, part: Part, line: str) -> None: ...

    def stderr_line(self, part: Part, line: str) -> None: ...


class Supervisor:
    def __init__(
        self, parts: Sequence[Part], observer: Observer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.servers = [part for part in parts if part.before_broker]
        self.broker, *self.others = [part for part in parts if not part.before_broker]
        self.listening: dict[str, list[Address]] = {}
        """The broker's addresses when it was last ready."""
        self._announced: dict[str, list[Address]] = {}
        """Addresses printed since the last start, before `ready`."""
        self._observer = observer
        self._clock = clock
        self._children: dict[str, Child] = {}
        self._stop = asyncio.Event()
        self._stop_time = 0.0
        self._broker_was_ready = asyncio.Event()

    @property
    def parts(self) -> list[Part]:
        return [*self.servers, self.broker, *self.others]

    async def run(self) -> None:
        """Runs until `stop`. Raises StartError if the first start of the broker fails."""
        servers = [asyncio.create_task(self._run_with_restarts(part)) for part in self.servers]
        broker = asyncio.create_task(self._run_with_restarts(self.broker))
        others = [asyncio.create_task(self._run_after_broker(part)) for part in self.others]
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait([broker, stop], return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()
        await self._end(others, self.others, OTHERS_SECONDS)
        await self._end([broker], [self.broker], BROKER_SECONDS)
        await self._end(servers, self.servers, BROKER_SECONDS)
        await asyncio.gather(stop, broker, *servers, *others)
        if self.broker.lifecycle.state is PartState.FAILED:
            message, _, hint = self.broker.lifecycle.reason.partition(f"\n{HINT}")
            raise StartError(message, hint)

    def stop(self) -> None:
        """The second call kills all parts. Two at once count as one: some tools signal a process and its group."""
        if not self._stop.is_set():
            self._stop_time = self._clock()
            self._stop.set()
        elif self._clock() - self._stop_time > ONE_SIGNAL_SECONDS:
            for child in self._children.values():
                child.kill()

    def child(self, part: Part) -> Child | None:
        return self._children.get(part.name)

    # -- one part ----------------------------------------------------------------------------------------

    async def _run_after_broker(self, part: Part) -> None:
        await _first(self._broker_was_ready, self._stop)
        if self._stop.is_set():
            return
        if reason := part.unavailable(self.listening):
            self._change(part, lambda now: part.lifecycle.disable(now, reason))
            return
        await self._run_with_restarts(part)

    async def _run_with_restarts(self, part: Part) -> None:
        while not self._stop.is_set():
            self._change(part, part.lifecycle.begin)
            code, reason = await self._run(part)
            if self._stop.is_set():
                self._change(part, part.lifecycle.stop)
                return
            self._change(part, partial(part.lifecycle.end, code=code, reason=reason))
            if part.lifecycle.state is not PartState.RESTING:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), part.lifecycle.due - self._clock())

    async def _run(self, part: Part) -> tuple[int, str]:
        """Runs one process to its end; returns its exit code and the reason."""
        child = Child(
            lambda line: self._handle_line(part, line), lambda line: self._observer.stderr_line(part, line)
        )
        self._children[part.name] = child
        if part is self.broker:
            self._announced = {}
        code = await child.run(
            part.module, part.arguments(self.listening), part.parent_death_signal, part.environment(os.environ)
        )
        return code, to_reason(code, child.error_text)

    def _handle_line(self, part: Part, line: str) -> None:
        if part is self.broker and line.startswith("listening "):
            _, name, address = line.split(" ", 2)
            self._announced.setdefault(name, []).append(parse_address(address))
        self._observer.stdout_line(part, line)
        if line in READY and part.lifecycle.state is PartState.STARTING:
            if part is self.broker:
                self.listening = self._announced
            self._change(part, part.lifecycle.ready)
            if part is self.broker:
                self._observer.broker_ready(console_url(self.listening))
                self._broker_was_ready.set()

    def _change(self, part: Part, act: Callable[[float], None]) -> None:
        act(self._clock())
        self._observer.state_changed(part)

    # -- the end -----------------------------------------------------------------------------------------

    async def _end(self, tasks: Iterable[asyncio.Task[None]], parts: Iterable[Part], seconds: float) -> None:
        waiting = [task for task in tasks if not task.done()]
        children = [child for part in parts if (child := self._children.get(part.name))]
        for child in children:
            child.terminate()
        if not waiting:
            return
        _, late = await asyncio.wait(waiting, timeout=seconds)
        for child in children if late else ():
            child.kill()
        if late:
            await asyncio.wait(late)


async def _first(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
