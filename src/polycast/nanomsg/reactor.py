"""The background thread: one for all sockets of a process, with an event loop of its own.

It starts with the first socket. At the exit of the process, open sockets are closed as by `close`. A forked child
does not have the thread: the sockets it inherited are closed in it, and new ones start a new thread.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import uvloop

T = TypeVar("T")


class Closeable(Protocol):
    closed: bool

    async def close(self) -> None: ...


class Reactor:
    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.sockets: WeakSet[Closeable] = WeakSet()
        self._thread = threading.Thread(target=self.loop.run_forever, name="polycast.nanomsg", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in the background thread, and waits for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop(self) -> None:
        self.run(self._close_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _close_all(self) -> None:
        await asyncio.gather(*(sock.close() for sock in self.sockets))


_lock = threading.Lock()
_reactor: Reactor | None = None
_inherited: list[Reactor] = []
"""Reactors of parent processes. They stay open: their event loop shares file descriptors with the parent."""


def reactor() -> Reactor:
    global _reactor
    with _lock:
        if _reactor is None:
            _reactor = Reactor()
        return _reactor


@atexit.register
def _stop() -> None:
    global _reactor
    stopping, _reactor = _reactor, None
    if stopping is not None:
        stopping.stop()


def _reset_after_fork() -> None:
    global _lock, _reactor
    _lock = threading.Lock()
    if _reactor is not None:
        for sock in _reactor.sockets:
            sock.closed = True
        _inherited.append(_reactor)
        _reactor = None


os.register_at_fork(after_in_child=_reset_after_fork)
