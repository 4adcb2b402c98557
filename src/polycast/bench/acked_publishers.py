"""Connections that publish prepared blocks of messages in parallel, and count acknowledgements.

As in the pump, a block is encoded once and several blocks are sent at a time; acknowledgements are counted per
read (see `ack_counters`). The acknowledgements of each connection limit how far it runs ahead.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter

from polycast.bench.ack_counters import AckCounter
from polycast.bench.cpu_time import measure_cpu_time
from polycast.bench.pump import QUIET_SECONDS, STALL_LIMIT_SECONDS, Flow
from polycast.bench.target_connections import open_connection
from polycast.bench.wires.acked_formats import AckedWireFormat
from polycast.errors import RemoteError

READ_BYTES = 1024 * 1024
EMPTY = memoryview(b"")


@dataclass
class AckedPublisher:
    name: str
    socket: socket.socket
    block: bytes
    acks_per_block: int
    ack_counter: AckCounter
    sent: int = 0
    """Blocks, including a partly sent one."""
    acks: int = 0
    rest: memoryview = EMPTY
    """The unsent bytes of these blocks."""
    supply: memoryview = EMPTY
    """A window of blocks, to slice from."""

    @property
    def finished(self) -> int:
        """Fully acknowledged blocks."""
        return self.acks // self.acks_per_block

    @property
    def expected(self) -> int:
        return self.sent * self.acks_per_block

    def read(self) -> bytes:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise RemoteError("the target closed the connection")
        self.acks += self.ack_counter.take(data)
        return data

    def write(self) -> None:
        try:
            self.rest = self.rest[self.socket.send(self.rest) :]
        except BlockingIOError:
            return


@contextmanager
def open_publishers(
    wire: AckedWireFormat, port: int, topics: list[str], payload: bytes, batch: int, batches: int
) -> Iterator[list[AckedPublisher]]:
    """A publisher per topic, with blocks of `batches` batches; closes the sockets on exit."""
    with ExitStack() as stack:
        publishers = []
        for number, topic in enumerate(topics):
            connection = stack.enter_context(open_connection(f"publisher {number}", port, wire.handshake))
            connection.shake_hands(wire.prepare(number, topics))
            block = wire.publish(number, topic, payload, batch) * batches
            publishers.append(
                AckedPublisher(
                    connection.name, connection.socket, block, wire.acks(batch) * batches, wire.ack_counter(batch)
                )
            )
        yield publishers


class AckedPump:
    def __init__(self, publishers: list[AckedPublisher], processes: Sequence[int] = ()) -> None:
        """`processes`: those of the target."""
        self._publishers = publishers
        self._processes = processes
        self._selector = selectors.DefaultSelector()
        for publisher in publishers:
            publisher.socket.setblocking(False)
            self._selector.register(publisher.socket, selectors.EVENT_READ, publisher)

    def close(self) -> None:
        """The sockets stay open."""
        self._selector.close()

    def run(self, seconds: float, window: int) -> Flow:
        """Publishes for `seconds`, with at most `window` unacknowledged blocks per publisher; then waits for the
        rest.

        Each publisher sends its first window even if the time is over before.
        """
        sent_before = {publisher.name: publisher.sent for publisher in self._publishers}
        stop = perf_counter() + seconds
        return self._flow(
            window,
            lambda publisher, room: (
                room if publisher.sent == sent_before[publisher.name] or perf_counter() < stop else 0
            ),
        )

    def fill(self, blocks: int, window: int) -> Flow:
        return self._flow(window, lambda publisher, room: min(room, blocks - publisher.sent))

    def _flow(self, window: int, allowed: Callable[[AckedPublisher, int], int]) -> Flow:
        before = sum(publisher.finished for publisher in self._publishers)
        for publisher in self._publishers:
            publisher.supply = memoryview(publisher.block * window)
        cpu = measure_cpu_time(self._processes)
        start = perf_counter()
        for publisher in self._publishers:
            self._push(publisher, window, allowed)
        while any(publisher.acks < publisher.expected for publisher in self._publishers):
            self._poll(window, allowed)
        elapsed = perf_counter() - start
        cpu = measure_cpu_time(self._processes).since(cpu)
        self._check_total()
        return Flow(sum(publisher.finished for publisher in self._publishers) - before, elapsed, cpu)

    def _poll(self, window: int, allowed: Callable[[AckedPublisher, int], int]) -> None:
        ready = self._selector.select(STALL_LIMIT_SECONDS)
        if not ready:
            raise RemoteError(f"nothing moved for {STALL_LIMIT_SECONDS:g} s: {self._progress()}")
        for key, events in ready:
            if events & selectors.EVENT_READ:
                self._read(key.data)
            self._push(key.data, window, allowed)

    def _push(self, publisher: AckedPublisher, window: int, allowed: Callable[[AckedPublisher, int], int]) -> None:
        """Sends what the window allows; registers for writing if the socket took only a part."""
        was_waiting = bool(publisher.rest)
        if not publisher.rest:
            room = window - (publisher.sent - publisher.finished)
            blocks = allowed(publisher, room) if room > 0 else 0
            if blocks <= 0:
                return
            publisher.rest = publisher.supply[: blocks * len(publisher.block)]
            publisher.sent += blocks
        publisher.write()
        if bool(publisher.rest) != was_waiting:
            writing = selectors.EVENT_WRITE if publisher.rest else 0
            self._selector.modify(publisher.socket, selectors.EVENT_READ | writing, publisher)

    def _read(self, publisher: AckedPublisher) -> None:
        try:
            publisher.read()
        except (RemoteError, OSError) as error:
            raise RemoteError(f"{publisher.name}: {error}") from error

    def _check_total(self) -> None:
        """Fails if more acknowledgements arrive than expected."""
        for key, _ in self._selector.select(QUIET_SECONDS):
            self._read(key.data)
        if any(
            publisher.acks != publisher.expected or publisher.ack_counter.unread for publisher in self._publishers
        ):
            raise RemoteError(f"too many acknowledgements: {self._progress()}")

    def _progress(self) -> str:
        worst = max(self._publishers, key=lambda publisher: abs(publisher.acks - publisher.expected))
        unread = worst.ack_counter.unread
        return f"{worst.name} got {worst.acks} of {worst.expected} acknowledgements" + (
            f", then {unread!r}" if unread else ""
        )
