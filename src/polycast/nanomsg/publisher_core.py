"""The core of a PUB: each message is encoded once for all pipes, and never waits for a subscriber.

`send` adds the message to the outbox; the background thread takes the whole outbox at once. A sender waits at
most for that thread.
"""

from __future__ import annotations

import threading

from polycast.model import Burst, Encoded, Encoder, Format
from polycast.nanomsg.sessions import Kind
from polycast.nanomsg.socket_core import MESSAGE_OVERHEAD_BYTES, Options, SocketCore

HANDOVER_BYTES = 256 * 1024
"""The size of the outbox at which a sender waits for the background thread."""


class PublisherCore(SocketCore):
    kind = Kind.PUB

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.missed = 0
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._handover_bytes = min(HANDOVER_BYTES, options.queue_bytes)
        self._taken = threading.Condition(self.lock)

    def send(self, message: bytes, timeout: float | None) -> bool:
        """Whether the outbox had room in time. Without peers the message is dropped."""
        if not self.peers:
            return True
        with self.lock:
            full = self._outbox_bytes >= self._handover_bytes
            if full and not self._taken.wait_for(lambda: self._outbox_bytes < self._handover_bytes, timeout):
                return False
            if not self._outbox:
                self.reactor.loop.call_soon_threadsafe(self.flush)
            self._outbox.append(message)
            self._outbox_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        return True

    def flush(self) -> None:
        with self.lock:
            messages, self._outbox = self._outbox, []
            self._outbox_bytes = 0
            self._taken.notify_all()
        if not messages or not self.peers:
            return
        burst = Burst.of("nanomsg", [(b"", message, Format.BYTES) for message in messages])
        encoded: dict[Encoder, Encoded] = {}
        for pipe in self.peers:
            if pipe.encoder not in encoded:
                encoded[pipe.encoder] = pipe.encoder.encode(burst, [(0, len(messages))])
            if not pipe.write(encoded[pipe.encoder], self.options.queue_bytes):
                self.missed += len(messages)
