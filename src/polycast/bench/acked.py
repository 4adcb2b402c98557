"""Acknowledged publications: the measurement of one target, and the filling of a log.

First the proof: every lane publishes one block, and its answers are read word by word. Then a warm-up, which
also tells how fast the target is (see `driver` for why a slow one gets a smaller window), then the timed run.
"""

from __future__ import annotations

from contextlib import closing
from time import perf_counter

from polycast.bench.cells import STORE_BATCH, Cell
from polycast.bench.job import Job, Outcome
from polycast.bench.lanes import Lane, LanePump, open_lanes
from polycast.bench.links import ANSWER_LIMIT_SECONDS
from polycast.bench.pump import WARM_UP_SHARE, Flow
from polycast.bench.wires.acked import ACKED_WIRES, AckedWire
from polycast.errors import RemoteError

BLOCK_MESSAGES = 100
FENCE_TOPIC = "fence"
STORE_WINDOW = 10
"""How many blocks each lane may be ahead where a log is filled."""


def batches_per_block(cell: Cell) -> int:
    return max(1, BLOCK_MESSAGES // cell.batch)


def window_blocks(job: Job, warm_up: Flow) -> int:
    cell = job.cell
    allowed = cell.window // (batches_per_block(cell) * cell.batch)
    digestible = int(warm_up.chunks / cell.topics / warm_up.elapsed * job.seconds)
    return max(1, min(allowed, digestible))


def measure(job: Job) -> Outcome:
    cell, wire = job.cell, ACKED_WIRES[job.wire]
    batches = batches_per_block(cell)
    with open_lanes(wire, job.publish_port, cell.topic_names, cell.payload, cell.batch, batches) as lanes:
        for lane in lanes:
            prove(lane, wire, cell.batch)
        with closing(LanePump(lanes)) as pump:
            window = window_blocks(job, pump.run(job.seconds * WARM_UP_SHARE, 1))
            flow = pump.run(job.seconds, window)
    messages = batches * cell.batch
    published = flow.chunks * messages
    return Outcome(published, delivered=published, elapsed=flow.elapsed, window=window * messages)


def prove(lane: Lane, wire: AckedWire, batch: int) -> None:
    lane.socket.settimeout(ANSWER_LIMIT_SECONDS)
    lane.socket.sendall(lane.block)
    lane.sent += 1
    heard = b""
    while lane.answers < lane.owed:
        try:
            heard += lane.read()
        except TimeoutError as error:
            got = f"{lane.answers} of {lane.owed} answers"
            raise RemoteError(f"{lane.name}: {got} within {ANSWER_LIMIT_SECONDS:g} s") from error
    wire.check(heard, batch)


def fence(port: int) -> float:
    """How long the log takes to have everything that has been published: one more is acknowledged after all."""
    wire = ACKED_WIRES["hermod"]
    with open_lanes(wire, port, [FENCE_TOPIC], b"", batch=1, batches=1) as (lane,):
        start = perf_counter()
        prove(lane, wire, batch=1)
        return perf_counter() - start


def fill(cell: Cell, port: int) -> None:
    """Publish what the cell has stored, the same number of messages on each topic, until all is acknowledged."""
    wire = ACKED_WIRES["hermod"]
    with (
        open_lanes(wire, port, cell.topic_names, cell.payload, STORE_BATCH, 1) as lanes,
        closing(LanePump(lanes)) as pump,
    ):
        pump.fill(cell.stored // (cell.topics * STORE_BATCH), STORE_WINDOW)
