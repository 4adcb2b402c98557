"""How long an acknowledgement takes at a steady rate: one publisher, one message at a time."""

from __future__ import annotations

from statistics import median
from time import perf_counter, sleep

from polycast.bench.acked_publishers import AckedPublisher, open_publishers
from polycast.bench.acked_publishing import verify
from polycast.bench.job import Job, Outcome
from polycast.bench.wires.acked_formats import ACKED_WIRES

RATE = 100
"""Messages per second."""


def measure(job: Job) -> Outcome:
    cell, wire = job.cell, ACKED_WIRES[job.wire]
    with open_publishers(wire, job.publish_port, cell.topic_names, cell.payload, 1, 1) as (publisher,):
        verify(publisher, wire, 1)
        begin = perf_counter()
        times = []
        for number in range(max(1, int(job.seconds * RATE))):
            sleep(max(0.0, begin + number / RATE - perf_counter()))
            times.append(_time(publisher))
    return Outcome(published=len(times), delivered=1, elapsed=median(times))


def _time(publisher: AckedPublisher) -> float:
    start = perf_counter()
    publisher.socket.sendall(publisher.block)
    publisher.sent += 1
    while publisher.acks < publisher.expected:
        publisher.read()
    return perf_counter() - start
