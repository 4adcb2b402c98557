"""One socket as the background thread has it: its pipes, its endpoints, and how it comes to an end.

Two threads meet here. What both touch is guarded by `lock`; everything else belongs to the background thread.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from polycast.model import Burst
from polycast.nanomsg.reactor import reactor

if TYPE_CHECKING:
    from polycast.nanomsg.endpoints import Endpoint
    from polycast.nanomsg.pipe import Pipe

MESSAGE_OVERHEAD_BYTES = 64
"""What a message costs besides its bytes: a queue of empty ones has an end, too."""
ABORT_SECONDS = 1.0
"""An aborted pipe is gone at once. Should uvloop forget to say so, closing does not hang."""


class Kind(IntEnum):
    """The numbers are those of the SP headers, and of nanomsg's `NN_PUB` and `NN_SUB`."""

    PUB = 0x20
    SUB = 0x21


@dataclass(frozen=True, slots=True)
class Options:
    message_bytes: int
    queue_bytes: int
    linger_seconds: float


class End:
    kind: Kind

    def __init__(self, options: Options) -> None:
        self.options = options
        self.closed = False
        self.lock = threading.Lock()
        self.peers: set[Pipe] = set()
        """The pipes that are up: whoever is at the other end has introduced itself."""
        self.reactor = reactor()
        self.reactor.tenants.add(self)
        self._joined = threading.Condition(self.lock)
        self._pipes: set[Pipe] = set()
        self._endpoints: list[Endpoint] = []
        self._quiet = asyncio.Event()

    # -- for the socket, in any thread -------------------------------------------------------------------

    def wait_for_peers(self, count: int, timeout: float | None) -> bool:
        with self.lock:
            self._joined.wait_for(lambda: self.closed or len(self.peers) >= count, timeout)
            return len(self.peers) >= count

    # -- in the background thread ------------------------------------------------------------------------

    async def add(self, endpoint: Endpoint) -> bool:
        """False: the socket was closed in the meantime, and so is the endpoint."""
        await endpoint.open()
        if self.closed:
            await endpoint.close()
            return False
        self._endpoints.append(endpoint)
        return True

    def opened(self, pipe: Pipe) -> None:
        self._pipes.add(pipe)

    def joined(self, pipe: Pipe) -> None:
        with self.lock:
            self.peers.add(pipe)
            self._joined.notify_all()

    def parted(self, pipe: Pipe) -> None:
        with self.lock:
            self.peers.discard(pipe)

    def left(self, pipe: Pipe) -> None:
        self._pipes.discard(pipe)
        if not self._pipes:
            self._quiet.set()

    def received(self, pipe: Pipe, burst: Burst) -> None:
        """Messages came; never for a PUB, whose sessions do not let any through."""
        raise NotImplementedError

    def flush(self) -> None:
        """Hands what was sent to the pipes."""

    async def close(self) -> None:
        """What was sent still goes out, for as long as the linger time lasts."""
        with self.lock:
            self.closed = True
            self._wake()
        endpoints, self._endpoints = self._endpoints, []
        for endpoint in endpoints:
            await endpoint.close()
        self.flush()
        for pipe in list(self._pipes):
            pipe.finish()
        if not await self._is_quiet(self.options.linger_seconds):
            for pipe in list(self._pipes):
                pipe.abort()
            await self._is_quiet(ABORT_SECONDS)

    def _wake(self) -> None:
        """Everybody who waits for something that will not happen any more."""
        self._joined.notify_all()

    async def _is_quiet(self, seconds: float) -> bool:
        self._quiet.clear()
        if self._pipes:
            try:
                await asyncio.wait_for(self._quiet.wait(), seconds)
            except TimeoutError:
                return False
        return True
