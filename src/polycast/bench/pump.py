"""The pump: one loop over non-blocking sockets that publishes prepared chunks and counts received bytes.

The loop must be much cheaper than any broker. A chunk holds many whole cycles, encoded once; received bytes are
counted, not read (on Linux, MSG_TRUNC makes TCP discard them without a copy); one number limits the publisher: the
chunks that the slowest subscriber has received in full. Every subscriber of a cell receives the same bytes.
"""

from __future__ import annotations

import selectors
import socket
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from polycast.bench.cpu_time import CpuTime, measure_cpu_time
from polycast.bench.log_counters import read_log_counters
from polycast.errors import RemoteError

DISCARD = socket.MSG_TRUNC if sys.platform == "linux" else 0
READ_BYTES = 4 * 1024 * 1024
STALL_LIMIT_SECONDS = 10.0
DRAIN_LIMIT_SECONDS = 30.0
QUIET_SECONDS = 0.05
QUIET_LIMIT_SECONDS = 2.0
KEEPALIVE_LIMIT = 2
WARM_UP_SHARE = 0.25
"""Duration of the warm-up, as a share of the timed run."""
PUBLISHER = -1


@dataclass(frozen=True)
class Traffic:
    """`keepalive_bytes`: size of `WireFormat.keepalive`."""

    chunk: bytes
    expected: Callable[[int], int]
    """Bytes per subscriber for a number of chunks, counted from the pump's first one."""
    keepalive_bytes: int


@dataclass(frozen=True)
class Flow:
    """Whole chunks, and the time from the first byte sent to the last byte received."""

    chunks: int
    elapsed: float
    cpu: CpuTime = CpuTime()
    log_bytes: int = 0
    """Written to the log of the target; 0: not measured."""


class Pump:
    def __init__(
        self,
        publisher: socket.socket,
        subscribers: list[socket.socket],
        traffic: Traffic,
        processes: Sequence[int] = (),
        metrics_port: int | None = None,
    ) -> None:
        """`processes`: those of the target; `metrics_port`: if it has a log."""
        self._publisher = publisher
        self._processes = processes
        self._metrics_port = metrics_port
        self._traffic = traffic
        self._buffer = bytearray(READ_BYTES)
        self._received = [0] * len(subscribers)
        self._earlier = 0  # chunks of the runs before this one
        self._edges: list[int] = []  # expected bytes at the end of each chunk of this run
        self._rest = memoryview(b"")
        self._interest = selectors.EVENT_READ
        self._selector = selectors.DefaultSelector()
        self._selector.register(publisher, self._interest, PUBLISHER)
        for index, subscriber in enumerate(subscribers):
            self._selector.register(subscriber, selectors.EVENT_READ, index)
        for each in (publisher, *subscribers):
            each.setblocking(False)

    def close(self) -> None:
        """The sockets stay open."""
        self._selector.close()

    def run(self, seconds: float, window: int) -> Flow:
        """Publishes for `seconds`, with at most `window` chunks in flight; then drains and checks the totals."""
        self._received = [0] * len(self._received)
        self._earlier += len(self._edges)
        self._edges = []
        try:
            flow = self._flow(seconds, window)
            self._check_total()
        except OSError as error:
            raise RemoteError(f"{error}: {self._progress()}") from error
        return flow

    def _flow(self, seconds: float, window: int) -> Flow:
        log = read_log_counters(self._metrics_port)
        cpu = measure_cpu_time(self._processes)
        start = now = perf_counter()
        stop = start + seconds
        finished = 0
        edges = self._edges
        while now < stop or self._rest or finished < len(edges):
            room = bool(self._rest) or (now < stop and len(edges) - finished < window)
            if not self._poll(room, STALL_LIMIT_SECONDS):
                raise RemoteError(f"nothing moved for {STALL_LIMIT_SECONDS:g} s: {self._progress()}")
            finished = bisect_right(edges, min(self._received), finished)
            now = perf_counter()
            if now > stop + DRAIN_LIMIT_SECONDS:
                raise RemoteError(f"not drained after {DRAIN_LIMIT_SECONDS:g} s: {self._progress()}")
        cpu = measure_cpu_time(self._processes).since(cpu)
        log = read_log_counters(self._metrics_port).since(log)
        return Flow(len(edges), now - start, cpu, log.written_bytes)

    def _poll(self, room: bool, timeout: float) -> bool:
        """Handles all ready sockets; False: none became ready."""
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if room else 0)
        if interest != self._interest:
            self._selector.modify(self._publisher, interest, PUBLISHER)
            self._interest = interest
        ready = self._selector.select(timeout)
        for key, events in ready:
            if events & selectors.EVENT_READ:
                count = self._read(key)
                if key.data != PUBLISHER:
                    self._received[key.data] += count
            if events & selectors.EVENT_WRITE:
                self._write()
        return bool(ready)

    def _read(self, key: selectors.SelectorKey) -> int:
        assert isinstance(key.fileobj, socket.socket)
        count = key.fileobj.recv_into(self._buffer, 0, DISCARD)
        if not count:
            name = "the publisher" if key.data == PUBLISHER else f"subscriber {key.data}"
            raise RemoteError(f"the target closed the connection of {name}: {self._progress()}")
        return count

    def _write(self) -> None:
        if not self._rest:
            self._rest = memoryview(self._traffic.chunk)
            expected = self._traffic.expected
            self._edges.append(expected(self._earlier + len(self._edges) + 1) - expected(self._earlier))
        self._rest = self._rest[self._publisher.send(self._rest) :]

    def _expected(self) -> int:
        """Bytes per subscriber in this run."""
        return self._edges[-1] if self._edges else 0

    def _check_total(self) -> None:
        """Reads until quiet, then requires the exact count: nothing lost, nothing repeated."""
        deadline = perf_counter() + QUIET_LIMIT_SECONDS
        while self._poll(room=False, timeout=QUIET_SECONDS) and perf_counter() < deadline:
            pass
        expected = self._expected()
        if any(not self._explained(got - expected) for got in self._received):
            raise RemoteError(f"wrong byte count: {self._progress()}")

    def _explained(self, excess: int) -> bool:
        size = self._traffic.keepalive_bytes
        return excess == 0 or (size > 0 and 0 < excess <= KEEPALIVE_LIMIT * size and excess % size == 0)

    def _progress(self) -> str:
        """Received and expected bytes of the worst subscriber."""
        expected = self._expected()
        excess = [got - expected for got in self._received]
        worst = max(range(len(excess)), key=lambda index: abs(excess[index]))
        return (
            f"subscriber {worst} got {self._received[worst]} of {expected} bytes ({excess[worst]:+d}), "
            f"{len(excess) - excess.count(0)} of {len(excess)} subscribers are off"
        )
