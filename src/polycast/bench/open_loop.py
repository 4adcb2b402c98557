"""Open loop: messages are published when they are due, and delays count from then (see `delays`).

One thread sends and receives. At each wake-up it sends all due messages with one call, as a slice of a prepared
block. It parses nothing: the number of bytes received so far says which messages are complete, and the clock is
read after each read. So a wake-up costs a few microseconds, whatever the protocol; the delays include this cost
and the time for which a message was due before it was sent (`sent_late`).
"""

from __future__ import annotations

import ctypes
import gc
import socket
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from select import select
from time import perf_counter

from polycast.bench.acked_publishers import open_publishers
from polycast.bench.acked_publishing import verify as verify_acks
from polycast.bench.cells import Cell
from polycast.bench.cpu_time import CpuTime, measure_cpu_time
from polycast.bench.delays import Completed, Percentiles, Schedule, percentiles
from polycast.bench.job import Job, Outcome
from polycast.bench.preflight import verify
from polycast.bench.pump import (
    DISCARD,
    DRAIN_LIMIT_SECONDS,
    KEEPALIVE_LIMIT,
    QUIET_SECONDS,
    READ_BYTES,
    STALL_LIMIT_SECONDS,
    WARM_UP_SHARE,
)
from polycast.bench.target_connections import connect_all
from polycast.bench.wires import WIRES
from polycast.bench.wires.acked_formats import ACKED_WIRES
from polycast.errors import RemoteError

LEAD_SECONDS = 0.01
"""From the call of `run` until the first message is due."""
BLOCK_BYTES = 256 * 1024
"""At most this much is sent with one call."""
HERMOD_ACK = b'{"status": "OK"}\n'
PR_SET_TIMERSLACK = 29
SLACK_NANOSECONDS = 1


@dataclass(frozen=True)
class OpenTraffic:
    """`message`: as published; all messages are equal. `keepalive_bytes`: size of `WireFormat.keepalive`."""

    message: bytes
    expected: Callable[[int], int]
    """Bytes per receiver for a number of messages."""
    keepalive_bytes: int = 0


@dataclass(frozen=True)
class OpenFlow:
    """`elapsed`: from the first due time to the last byte."""

    elapsed: float
    cpu: CpuTime
    delays: Percentiles
    sent_late: Percentiles


class OpenLoop:
    """`receivers`: the sockets whose bytes count: subscribers, or the publisher for acknowledgements."""

    def __init__(
        self,
        publisher: socket.socket,
        receivers: Sequence[socket.socket],
        traffic: OpenTraffic,
        processes: Sequence[int] = (),
    ) -> None:
        """`processes`: those of the target."""
        self._publisher = publisher
        self._processes = processes
        self._numbers = {receiver: number for number, receiver in enumerate(receivers)}
        self._sockets = [*receivers, *({publisher} - set(receivers))]
        self._traffic = traffic
        self._buffer = bytearray(READ_BYTES)
        self._block = memoryview(traffic.message * max(1, BLOCK_BYTES // len(traffic.message)))
        self._rest = memoryview(b"")
        self._edges: array[int] = array("q")  # expected bytes at the end of each message
        self._received = [0] * len(receivers)
        self._finished = [0] * len(receivers)
        self._reads: list[Completed] = []
        self._writes: list[Completed] = []
        for each in self._sockets:
            each.setblocking(False)

    def run(self, rate: int, messages: int, first: int = 0) -> OpenFlow:
        """Publishes `messages` at this rate; the delays are those of messages from number `first` on."""
        expected = self._traffic.expected
        self._edges = array("q", (expected(number) for number in range(1, messages + 1)))
        before = measure_cpu_time(self._processes)
        schedule = Schedule(perf_counter() + LEAD_SECONDS, rate)
        try:
            end = self._flow(schedule, messages)
            cpu = measure_cpu_time(self._processes).since(before)
            self._check_total()
        except OSError as error:
            raise RemoteError(f"{error}: {self._progress()}") from error
        return OpenFlow(
            end - schedule.begin,
            cpu,
            percentiles(schedule.delays(self._reads, first)),
            percentiles(schedule.delays(self._writes, first)),
        )

    def _flow(self, schedule: Schedule, messages: int) -> float:
        """Returns the time of the last read."""
        sent, now = 0, perf_counter()
        limit = schedule.due_time(messages) + DRAIN_LIMIT_SECONDS
        while min(self._finished) < messages:
            if now > limit:
                raise RemoteError(f"not drained after {DRAIN_LIMIT_SECONDS:g} s: {self._progress()}")
            sent = self._send(now, sent, min(messages, schedule.due(now)))
            next_due = schedule.due_time(sent) if sent < messages else limit
            self._poll(next_due - perf_counter())
            now = perf_counter()
        return self._reads[-1].time

    def _send(self, now: float, sent: int, due: int) -> int:
        """Sends all due messages; returns the number of messages sent so far."""
        if due > sent and not self._rest:
            size = len(self._traffic.message)
            count = min(due - sent, len(self._block) // size)
            self._rest = self._block[: count * size]
            self._writes.append(Completed(now, sent, sent + count))
            sent += count
        if self._rest:
            try:
                self._rest = self._rest[self._publisher.send(self._rest) :]
            except BlockingIOError:
                return sent
        return sent

    def _poll(self, timeout: float) -> bool:
        """Reads all ready sockets. `select` takes microseconds, `epoll` whole milliseconds."""
        unsent = [self._publisher] if self._rest else []
        ready = select(self._sockets, unsent, (), STALL_LIMIT_SECONDS if unsent else max(0.0, timeout))[0]
        for receiver in ready:
            count = receiver.recv_into(self._buffer, 0, DISCARD)
            number = self._numbers.get(receiver)
            if not count:
                name = "the publisher" if receiver is self._publisher else f"subscriber {number}"
                raise RemoteError(f"the target closed the connection of {name}: {self._progress()}")
            if number is not None:
                self._count(number, count)
        return bool(ready)

    def _count(self, number: int, count: int) -> None:
        now = perf_counter()
        self._received[number] += count
        start = self._finished[number]
        stop = bisect_right(self._edges, self._received[number], start)
        if stop > start:
            self._finished[number] = stop
            self._reads.append(Completed(now, start, stop))

    def _check_total(self) -> None:
        """Reads until quiet, then requires the exact count: nothing lost, nothing repeated."""
        deadline = perf_counter() + DRAIN_LIMIT_SECONDS
        while self._poll(QUIET_SECONDS) and perf_counter() < deadline:
            pass
        size = self._traffic.keepalive_bytes
        allowed = {self._edges[-1] + extra * size for extra in range(KEEPALIVE_LIMIT + 1)}
        if not allowed.issuperset(self._received):
            raise RemoteError(f"wrong byte count: {self._progress()}")

    def _progress(self) -> str:
        expected = self._edges[-1]
        worst = max(range(len(self._received)), key=lambda number: abs(self._received[number] - expected))
        return f"receiver {worst} got {self._received[worst]} of {expected} bytes"


def measure(job: Job) -> Outcome:
    """The delays of deliveries."""
    wire, cell = WIRES[job.wire], job.cell
    (topic,) = cell.topic_names
    with connect_all(wire, cell, job.publish_port, job.subscribe_port) as participants:
        per_subscriber = verify(participants, wire, cell)
        traffic = OpenTraffic(wire.publish(topic, cell.payload), per_subscriber.expected, len(wire.keepalive))
        sockets = [subscriber.connection.socket for subscriber in participants.subscribers]
        return _time(job, OpenLoop(participants.publisher.socket, sockets, traffic, job.processes))


def measure_acks(job: Job) -> Outcome:
    """The delays of hermod's acknowledgements, which all have the same size."""
    wire, cell = ACKED_WIRES["hermod"], job.cell
    with open_publishers(wire, job.publish_port, cell.topic_names, cell.payload, 1, 1) as (publisher,):
        verify_acks(publisher, wire, 1)
        size = len(HERMOD_ACK)
        traffic = OpenTraffic(publisher.block, lambda messages: messages * size)
        return _time(job, OpenLoop(publisher.socket, [publisher.socket], traffic, job.processes))


def measure_durable(job: Job) -> Outcome:
    """For hermod the acknowledgement, for other dialects the delivery: a message arrives when it is durable."""
    return measure_acks(job) if job.wire == "hermod" else measure(job)


def message_counts(cell: Cell, seconds: float) -> tuple[int, int]:
    """The messages of the warm-up, and of everything."""
    warm_up = int(cell.rate * seconds * WARM_UP_SHARE)
    return warm_up, warm_up + max(1, int(cell.rate * seconds))


def _time(job: Job, loop: OpenLoop) -> Outcome:
    warm_up, messages = message_counts(job.cell, job.seconds)
    with _undisturbed():
        flow = loop.run(job.cell.rate, messages, warm_up)
    return Outcome(
        published=messages,
        delivered=messages * job.cell.subscribers,
        elapsed=flow.elapsed,
        cpu=flow.cpu,
        delays=flow.delays,
        sent_late=flow.sent_late,
    )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without garbage collection, and (Linux) with timers that are not 50 us late."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, SLACK_NANOSECONDS)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
