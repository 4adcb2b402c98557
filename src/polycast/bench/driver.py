"""The driver: one measurement of one target in one cell. A job (JSON) on stdin, an outcome (JSON) on stdout.

    python -m polycast.bench.driver < job.json

Live traffic: first `preflight`, then a warm-up with the same traffic, then the timed run (see `pump`). The
warm-up also gives the speed of the target. A window that takes a slow target longer than the whole measurement
would measure draining only, so a slow target gets a smaller window. `open_loop`, `acked_publishing` and
`log_replay` measure the other kinds, `disk_speed` the disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing

import msgspec

from polycast.bench import ack_latency, acked_publishing, log_replay, open_loop
from polycast.bench.cells import Cell, Kind
from polycast.bench.disk_speed import REFERENCES
from polycast.bench.expected_bytes import ExpectedBytes
from polycast.bench.job import Job, Outcome
from polycast.bench.preflight import verify
from polycast.bench.pump import WARM_UP_SHARE, Flow, Pump, Traffic
from polycast.bench.target_connections import Participants, connect_all
from polycast.bench.wires import WIRES, WireFormat
from polycast.errors import PolycastError

CHUNK_BYTES = 64 * 1024
WARM_UP_WINDOW_CHUNKS = 2


def cycles_per_chunk(cell: Cell) -> int:
    return max(1, CHUNK_BYTES // (cell.topics * cell.message_bytes))


def window_chunks(job: Job, warm_up: Flow) -> int:
    chunk_bytes = cycles_per_chunk(job.cell) * job.cell.topics * job.cell.message_bytes
    allowed = job.window_bytes // chunk_bytes
    sustainable = int(warm_up.chunks / warm_up.elapsed * job.seconds)
    return max(WARM_UP_WINDOW_CHUNKS, min(allowed, sustainable))


def measure_live(job: Job) -> Outcome:
    wire = WIRES[job.wire]
    with connect_all(wire, job.cell, job.publish_port, job.subscribe_port) as participants:
        return _time(job, participants, _traffic(wire, job.cell, verify(participants, wire, job.cell)))


def _traffic(wire: WireFormat, cell: Cell, per_subscriber: ExpectedBytes) -> Traffic:
    cycles = cycles_per_chunk(cell)
    cycle = b"".join(wire.publish(topic, cell.payload) for topic in cell.topic_names)
    return Traffic(cycle * cycles, lambda chunks: per_subscriber.expected(chunks * cycles), len(wire.keepalive))


def _time(job: Job, participants: Participants, traffic: Traffic) -> Outcome:
    sockets = [subscriber.connection.socket for subscriber in participants.subscribers]
    with closing(Pump(participants.publisher.socket, sockets, traffic, job.processes, job.metrics_port)) as pump:
        warm_up = pump.run(job.seconds * WARM_UP_SHARE, WARM_UP_WINDOW_CHUNKS)
        window = window_chunks(job, warm_up)
        flow = pump.run(job.seconds, window)
    cycles = cycles_per_chunk(job.cell)
    return Outcome(
        published=flow.chunks * cycles * job.cell.topics,
        delivered=flow.chunks * cycles * job.cell.deliveries_per_cycle,
        elapsed=flow.elapsed,
        window=window * cycles * job.cell.topics,
        cpu=flow.cpu,
        log_bytes=flow.log_bytes,
    )


def _read_stream(job: Job) -> Outcome:
    from polycast.bench import stream_reader  # nats-py is optional, and large

    return stream_reader.measure(job)


MEASURES: dict[Kind, Callable[[Job], Outcome]] = {
    "live": measure_live,
    "open-loop": open_loop.measure,
    "logged": measure_live,
    "durable": open_loop.measure_durable,
    "acked": acked_publishing.measure,
    "latency": ack_latency.measure,
    "replay": log_replay.measure,
    "catch-up": _read_stream,
}


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        measure = REFERENCES.get(job.wire) or MEASURES[job.cell.kind]
        outcome = measure(job)
    except (PolycastError, OSError) as error:
        outcome = Outcome(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")


if __name__ == "__main__":
    main()
