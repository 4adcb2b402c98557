"""Lanes: connections that publish ready-made blocks of messages side by side, and count what is acknowledged.

The same economy as in the pump: a block is encoded once, as many blocks as there is room for are sent at one
go, and answers are counted by the read (see `tally`). Each lane is held back by its own acknowledgements.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter

from polycast.bench.links import connected
from polycast.bench.pump import QUIET_SECONDS, STALL_LIMIT_SECONDS, Flow
from polycast.bench.tally import Tally
from polycast.bench.wires.acked import AckedWire
from polycast.errors import RemoteError

READ_BYTES = 1024 * 1024
EMPTY = memoryview(b"")


@dataclass
class Lane:
    name: str
    socket: socket.socket
    block: bytes
    answers_per_block: int
    tally: Tally
    sent: int = 0
    """Blocks, of which the last may not be gone entirely."""
    answers: int = 0
    rest: memoryview = EMPTY
    """What of them could not be sent yet."""
    supply: memoryview = EMPTY
    """As many blocks in a row as may be sent at one go."""

    @property
    def finished(self) -> int:
        """Blocks that are acknowledged as a whole."""
        return self.answers // self.answers_per_block

    @property
    def owed(self) -> int:
        return self.sent * self.answers_per_block

    def read(self) -> bytes:
        """Count what has come."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise RemoteError("the target closed the connection")
        self.answers += self.tally.take(data)
        return data

    def write(self) -> None:
        try:
            self.rest = self.rest[self.socket.send(self.rest) :]
        except BlockingIOError:
            return


@contextmanager
def open_lanes(
    wire: AckedWire, port: int, topics: list[str], payload: bytes, batch: int, batches: int
) -> Iterator[list[Lane]]:
    """A lane for each topic, whose blocks hold so many batches; the sockets are closed on leaving."""
    with ExitStack() as stack:
        lanes = []
        for number, topic in enumerate(topics):
            link = stack.enter_context(connected(f"publisher {number}", port, wire.greeting))
            link.greet(wire.prepare(number, topics))
            block = wire.publish(number, topic, payload, batch) * batches
            lanes.append(Lane(link.name, link.socket, block, wire.answers(batch) * batches, wire.tally(batch)))
        yield lanes


class LanePump:
    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = lanes
        self._selector = selectors.DefaultSelector()
        for lane in lanes:
            lane.socket.setblocking(False)
            self._selector.register(lane.socket, selectors.EVENT_READ, lane)

    def close(self) -> None:
        """The sockets stay open: they are not the pump's."""
        self._selector.close()

    def run(self, seconds: float, window: int) -> Flow:
        """Publish for `seconds`, at most `window` blocks unfinished on each lane; then wait for the rest.

        Each lane gets its first window even where the time is over before it could begin.
        """
        begins = {lane.name: lane.sent for lane in self._lanes}
        stop = perf_counter() + seconds
        return self._flow(
            window, lambda lane, room: room if lane.sent == begins[lane.name] or perf_counter() < stop else 0
        )

    def fill(self, blocks: int, window: int) -> Flow:
        """Publish so many blocks on each lane."""
        return self._flow(window, lambda lane, room: min(room, blocks - lane.sent))

    def _flow(self, window: int, allowed: Callable[[Lane, int], int]) -> Flow:
        before = sum(lane.finished for lane in self._lanes)
        for lane in self._lanes:
            lane.supply = memoryview(lane.block * window)
        start = perf_counter()
        for lane in self._lanes:
            self._push(lane, window, allowed)
        while any(lane.answers < lane.owed for lane in self._lanes):
            self._turn(window, allowed)
        elapsed = perf_counter() - start
        self._settle()
        return Flow(sum(lane.finished for lane in self._lanes) - before, elapsed)

    def _turn(self, window: int, allowed: Callable[[Lane, int], int]) -> None:
        ready = self._selector.select(STALL_LIMIT_SECONDS)
        if not ready:
            raise RemoteError(f"nothing moved for {STALL_LIMIT_SECONDS:g} s: {self._balance()}")
        for key, events in ready:
            if events & selectors.EVENT_READ:
                self._read(key.data)
            self._push(key.data, window, allowed)

    def _push(self, lane: Lane, window: int, allowed: Callable[[Lane, int], int]) -> None:
        """Send what there is room for; ask to be called again when the socket took only part of it."""
        waited = bool(lane.rest)
        if not lane.rest:
            room = window - (lane.sent - lane.finished)
            blocks = allowed(lane, room) if room > 0 else 0
            if blocks <= 0:
                return
            lane.rest = lane.supply[: blocks * len(lane.block)]
            lane.sent += blocks
        lane.write()
        if bool(lane.rest) != waited:
            writing = selectors.EVENT_WRITE if lane.rest else 0
            self._selector.modify(lane.socket, selectors.EVENT_READ | writing, lane)

    def _read(self, lane: Lane) -> None:
        try:
            lane.read()
        except (RemoteError, OSError) as error:
            raise RemoteError(f"{lane.name}: {error}") from error

    def _settle(self) -> None:
        """Nothing may come that nothing was sent for."""
        for key, _ in self._selector.select(QUIET_SECONDS):
            self._read(key.data)
        if any(lane.answers != lane.owed or lane.tally.unread() for lane in self._lanes):
            raise RemoteError(f"too many answers: {self._balance()}")

    def _balance(self) -> str:
        worst = max(self._lanes, key=lambda lane: abs(lane.answers - lane.owed))
        unread = worst.tally.unread()
        return f"{worst.name} got {worst.answers} of {worst.owed} answers" + (
            f", then {unread!r}" if unread else ""
        )
