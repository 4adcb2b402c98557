"""Acknowledged publications: the measurement of one target, and the filling of a log.

First every publisher sends one block, and its acknowledgements are parsed. Then a warm-up, which also gives the
speed of the target (a slow target gets a smaller window, see `driver`), then the timed run.
"""

from __future__ import annotations

from contextlib import closing
from time import perf_counter

from polycast.bench.acked_publishers import AckedPublisher, AckedPump, open_publishers
from polycast.bench.cells import STORE_BATCH, Cell
from polycast.bench.job import Job, Outcome
from polycast.bench.pump import WARM_UP_SHARE, Flow
from polycast.bench.target_connections import RESPONSE_LIMIT_SECONDS
from polycast.bench.wires.acked_formats import ACKED_WIRES, AckedWireFormat
from polycast.errors import RemoteError

BLOCK_MESSAGES = 100
FENCE_TOPIC = "fence"
STORE_WINDOW = 10
"""Unacknowledged blocks per publisher while filling a log."""


def batches_per_block(cell: Cell) -> int:
    return max(1, BLOCK_MESSAGES // cell.batch)


def window_blocks(job: Job, warm_up: Flow) -> int:
    cell = job.cell
    allowed = cell.window // (batches_per_block(cell) * cell.batch)
    sustainable = int(warm_up.chunks / cell.topics / warm_up.elapsed * job.seconds)
    return max(1, min(allowed, sustainable))


def measure(job: Job) -> Outcome:
    cell, wire = job.cell, ACKED_WIRES[job.wire]
    batches = batches_per_block(cell)
    with open_publishers(
        wire, job.publish_port, cell.topic_names, cell.payload, cell.batch, batches
    ) as publishers:
        for publisher in publishers:
            verify(publisher, wire, cell.batch)
        with closing(AckedPump(publishers, job.processes)) as pump:
            window = window_blocks(job, pump.run(job.seconds * WARM_UP_SHARE, 1))
            flow = pump.run(job.seconds, window)
    messages = batches * cell.batch
    published = flow.chunks * messages
    return Outcome(published, delivered=published, elapsed=flow.elapsed, window=window * messages, cpu=flow.cpu)


def verify(publisher: AckedPublisher, wire: AckedWireFormat, batch: int) -> None:
    publisher.socket.settimeout(RESPONSE_LIMIT_SECONDS)
    publisher.socket.sendall(publisher.block)
    publisher.sent += 1
    received = b""
    while publisher.acks < publisher.expected:
        try:
            received += publisher.read()
        except TimeoutError as error:
            got = f"{publisher.acks} of {publisher.expected} acknowledgements"
            raise RemoteError(f"{publisher.name}: {got} within {RESPONSE_LIMIT_SECONDS:g} s") from error
    wire.check(received, batch)


def fence(port: int) -> float:
    """Seconds until the log is durable: publishes one more message and waits for its acknowledgement."""
    wire = ACKED_WIRES["hermod"]
    with open_publishers(wire, port, [FENCE_TOPIC], b"", batch=1, batches=1) as (publisher,):
        start = perf_counter()
        verify(publisher, wire, batch=1)
        return perf_counter() - start


def fill(cell: Cell, port: int) -> None:
    """Publishes `cell.stored` messages, spread over its topics, and waits for the acknowledgements."""
    wire = ACKED_WIRES["hermod"]
    with (
        open_publishers(wire, port, cell.topic_names, cell.payload, STORE_BATCH, 1) as publishers,
        closing(AckedPump(publishers)) as pump,
    ):
        pump.fill(cell.stored // (cell.topics * STORE_BATCH), STORE_WINDOW)
