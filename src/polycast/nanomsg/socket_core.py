"""The part of a socket that runs in the background thread: its pipes and its endpoints.

State that the user's threads share with the background thread is guarded by `lock`.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

from polycast.model import Burst
from polycast.nanomsg.pipe import Pipe
from polycast.nanomsg.reactor import reactor
from polycast.nanomsg.sessions import Kind

MESSAGE_OVERHEAD_BYTES = 64
"""The memory of a message besides its bytes, so that a queue of empty messages is bounded, too."""
ABORT_SECONDS = 1.0
"""An aborted pipe ends at once. If uvloop fails to report it, closing does not hang."""


@dataclass(frozen=True, slots=True)
class Options:
    message_bytes: int
    queue_bytes: int
    linger_seconds: float


class Endpoint:
    """An address that a socket is bound or connected to."""

    async def open(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class SocketCore:
    kind: Kind

    def __init__(self, options: Options) -> None:
        self.options = options
        self.closed = False
        self.lock = threading.Lock()
        self.peers: set[Pipe] = set()
        """Pipes whose handshake is done."""
        self.reactor = reactor()
        self.reactor.sockets.add(self)
        self._joined = threading.Condition(self.lock)
        self._pipes: set[Pipe] = set()
        self._endpoints: list[Endpoint] = []
        self._no_pipes = asyncio.Event()

    # -- for the socket, in any thread -------------------------------------------------------------------

    def wait_for_peers(self, count: int, timeout: float | None) -> bool:
        with self.lock:
            self._joined.wait_for(lambda: self.closed or len(self.peers) >= count, timeout)
            return len(self.peers) >= count

    # -- in the background thread ------------------------------------------------------------------------

    async def add(self, endpoint: Endpoint) -> bool:
        """False: the socket was closed in the meantime, and the endpoint is closed, too."""
        await endpoint.open()
        if self.closed:
            await endpoint.close()
            return False
        self._endpoints.append(endpoint)
        return True

    def add_pipe(self, pipe: Pipe) -> None:
        self._pipes.add(pipe)

    def add_peer(self, pipe: Pipe) -> None:
        with self.lock:
            self.peers.add(pipe)
            self._joined.notify_all()

    def remove_peer(self, pipe: Pipe) -> None:
        with self.lock:
            self.peers.discard(pipe)

    def remove_pipe(self, pipe: Pipe) -> None:
        self._pipes.discard(pipe)
        if not self._pipes:
            self._no_pipes.set()

    def handle_burst(self, pipe: Pipe, burst: Burst) -> None:
        """Messages arrived. Never called for a PUB, whose sessions accept no messages."""
        raise NotImplementedError

    def flush(self) -> None:
        """Writes sent messages to the pipes."""

    async def close(self) -> None:
        """Flushes for at most the linger time, then closes."""
        with self.lock:
            self.closed = True
            self._wake()
        endpoints, self._endpoints = self._endpoints, []
        for endpoint in endpoints:
            await endpoint.close()
        self.flush()
        for pipe in list(self._pipes):
            pipe.finish()
        if not await self._wait_for_pipes(self.options.linger_seconds):
            for pipe in list(self._pipes):
                pipe.abort()
            await self._wait_for_pipes(ABORT_SECONDS)

    def _wake(self) -> None:
        """Wakes all waiting threads: the socket is closed."""
        self._joined.notify_all()

    async def _wait_for_pipes(self, seconds: float) -> bool:
        self._no_pipes.clear()
        if self._pipes:
            try:
                await asyncio.wait_for(self._no_pipes.wait(), seconds)
            except TimeoutError:
                return False
        return True
