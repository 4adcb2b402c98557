"""The core of a SUB: a queue of matching messages. While it is full, pipes are not read (backpressure)."""

from __future__ import annotations

import threading
from collections import deque

from polycast.model import Burst
from polycast.nanomsg.pipe import Pipe
from polycast.nanomsg.prefix_filter import PrefixFilter
from polycast.nanomsg.sessions import Kind
from polycast.nanomsg.socket_core import MESSAGE_OVERHEAD_BYTES, Options, SocketCore


class SubscriberCore(SocketCore):
    kind = Kind.SUB

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._filter = PrefixFilter()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._arrived = threading.Condition(self.lock)
        self._paused: list[Pipe] = []

    def subscribe(self, topic: bytes) -> None:
        with self.lock:
            self._filter.add(topic)

    def unsubscribe(self, topic: bytes) -> None:
        """Queued messages that match no other subscription are dropped."""
        with self.lock:
            self._filter.remove(topic)
            self._queue = deque(self._filter.matching(self._queue))
            self._queued_bytes = _cost(self._queue)
            self._resume()

    def receive(self, timeout: float | None) -> bytes | None:
        """The next message; None: timeout, or the socket is closed."""
        with self.lock:
            if not self._queue and not self._arrived.wait_for(self._is_ready, timeout):
                return None
            if not self._queue:
                return None
            message = self._queue.popleft()
            self._queued_bytes -= len(message) + MESSAGE_OVERHEAD_BYTES
            if self._paused:
                self._resume()
            return message

    def handle_burst(self, pipe: Pipe, burst: Burst) -> None:
        block = bytes(burst.block)
        messages = [block[start:end] for start, end in zip(burst.starts, burst.ends, strict=True)]
        with self.lock:
            matching = self._filter.matching(messages)
            if not matching:
                return
            self._queue.extend(matching)
            self._queued_bytes += _cost(matching)
            self._arrived.notify(len(matching))
            if self._queued_bytes >= self.options.queue_bytes:
                self._paused.append(pipe)
                pipe.pause()

    def _resume(self) -> None:
        """Resumes reading when half of the queue is free, which limits wake-ups of the background thread."""
        if self._queued_bytes <= self.options.queue_bytes // 2:
            for pipe in self._paused:
                self.reactor.loop.call_soon_threadsafe(pipe.resume)
            self._paused.clear()

    def _is_ready(self) -> bool:
        return bool(self._queue) or self.closed

    def _wake(self) -> None:
        super()._wake()
        self._queue.clear()
        self._arrived.notify_all()


def _cost(messages: deque[bytes] | list[bytes]) -> int:
    return sum(map(len, messages)) + MESSAGE_OVERHEAD_BYTES * len(messages)
