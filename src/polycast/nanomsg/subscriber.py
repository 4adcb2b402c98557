"""The SUB end: what arrives and matches waits in a queue. When that is full, pipes are read no further."""

from __future__ import annotations

import threading
from collections import deque

from polycast.model import Burst
from polycast.nanomsg.end import MESSAGE_OVERHEAD_BYTES, End, Kind, Options
from polycast.nanomsg.pipe import Pipe
from polycast.nanomsg.topics import Topics


class Subscriber(End):
    kind = Kind.SUB

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._topics = Topics()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._arrived = threading.Condition(self.lock)
        self._paused: list[Pipe] = []

    def subscribe(self, topic: bytes) -> None:
        with self.lock:
            self._topics.add(topic)

    def unsubscribe(self, topic: bytes) -> None:
        """What waits already and matches no more is not delivered."""
        with self.lock:
            self._topics.remove(topic)
            self._queue = deque(self._topics.choose(self._queue))
            self._queued_bytes = _cost(self._queue)
            self._resume()

    def receive(self, timeout: float | None) -> bytes | None:
        """The next message; None if none came in time, or the socket was closed."""
        with self.lock:
            if not self._queue and not self._arrived.wait_for(self._is_due, timeout):
                return None
            if not self._queue:
                return None
            message = self._queue.popleft()
            self._queued_bytes -= len(message) + MESSAGE_OVERHEAD_BYTES
            if self._paused:
                self._resume()
            return message

    def received(self, pipe: Pipe, burst: Burst) -> None:
        block = bytes(burst.block)
        messages = [block[start:end] for start, end in zip(burst.starts, burst.ends, strict=True)]
        with self.lock:
            chosen = self._topics.choose(messages)
            if not chosen:
                return
            self._queue.extend(chosen)
            self._queued_bytes += _cost(chosen)
            self._arrived.notify(len(chosen))
            if self._queued_bytes >= self.options.queue_bytes:
                self._paused.append(pipe)
                pipe.pause()

    def _resume(self) -> None:
        """Half the queue is free again: enough to make it worth while to wake the other thread."""
        if self._queued_bytes <= self.options.queue_bytes // 2:
            for pipe in self._paused:
                self.reactor.loop.call_soon_threadsafe(pipe.resume)
            self._paused.clear()

    def _is_due(self) -> bool:
        return bool(self._queue) or self.closed

    def _wake(self) -> None:
        super()._wake()
        self._queue.clear()
        self._arrived.notify_all()


def _cost(messages: deque[bytes] | list[bytes]) -> int:
    return sum(map(len, messages)) + MESSAGE_OVERHEAD_BYTES * len(messages)
