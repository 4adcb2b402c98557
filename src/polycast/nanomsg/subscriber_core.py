"""The core of a SUB: a queue of matching messages. While it is full, pipes are not read (backpressure)."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable

from polycast.model import Burst
from polycast.nanomsg.pipe import Pipe
from polycast.nanomsg.sessions import Kind
from polycast.nanomsg.socket_core import MESSAGE_OVERHEAD_BYTES, Options, SocketCore


class PrefixFilter:
    """The subscriptions of a SUB socket: prefixes of messages, with a count each, as in nanomsg."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._sizes: list[int] = []
        """The lengths of all topics: a message needs one lookup for each length."""

    def add(self, topic: bytes) -> None:
        self._counts[topic] += 1
        self._sizes = sorted(set(map(len, self._counts)))

    def remove(self, topic: bytes) -> None:
        """A topic that was added twice must be removed twice."""
        if self._counts[topic] > 1:
            self._counts[topic] -= 1
        else:
            del self._counts[topic]
            self._sizes = sorted(set(map(len, self._counts)))

    def matching(self, messages: Iterable[bytes]) -> list[bytes]:
        counts = self._counts
        if b"" in counts:
            return list(messages)
        if len(self._sizes) == 1:
            [size] = self._sizes
            return [message for message in messages if message[:size] in counts]
        return [message for message in messages if self._matches(message)]

    def _matches(self, message: bytes) -> bool:
        return any(message[:size] in self._counts for size in self._sizes)


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
            if not self._queue:
                self._arrived.wait_for(lambda: self._queue or self.closed, timeout)
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

    def _wake(self) -> None:
        super()._wake()
        self._queue.clear()
        self._arrived.notify_all()


def _cost(messages: deque[bytes] | list[bytes]) -> int:
    return sum(map(len, messages)) + MESSAGE_OVERHEAD_BYTES * len(messages)
