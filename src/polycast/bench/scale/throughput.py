"""Throughput of one cell: the driver of `make bench`, some turns on one broker."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from polycast.bench.cells import Cell
from polycast.bench.driver_process import run_driver
from polycast.bench.job import Job, Outcome
from polycast.bench.scale.broker_process import BrokerProcess, run_broker
from polycast.bench.scale.points import Values
from polycast.errors import RemoteError

DIALECT = "simplest"
TURNS = 3


def measure_throughput(cell: Cell, seconds: float) -> Values:
    """On a broker of its own, because its memory is part of the result."""
    with run_broker([DIALECT]) as broker:
        values = summarize(cell, run_turns(broker, cell, seconds))
        return {**values, "peak": broker.peak()}


def run_turns(broker: BrokerProcess, cell: Cell, seconds: float) -> list[Outcome]:
    port = broker.ports[DIALECT]
    job = Job(DIALECT, port, port, cell, seconds, processes=(broker.process,))
    outcomes = [run_driver(job) for _ in range(TURNS)]
    if errors := [outcome.error for outcome in outcomes if outcome.error]:
        raise RemoteError(errors[0])
    return outcomes


def summarize(cell: Cell, outcomes: Sequence[Outcome]) -> Values:
    """The medians of the turns."""
    rate = median(outcome.rate for outcome in outcomes)
    return {
        "deliveries": rate,
        "lowest": min(outcome.rate for outcome in outcomes),
        "highest": max(outcome.rate for outcome in outcomes),
        "bytes": rate * cell.payload_bytes,
        "published": median(outcome.published / outcome.elapsed for outcome in outcomes),
        "delivery_ns": median(outcome.cpu.target / outcome.delivered * 1e9 for outcome in outcomes),
        "broker_cpu": median(outcome.cpu.target / outcome.elapsed for outcome in outcomes),
        "driver_cpu": median(outcome.cpu.driver / outcome.elapsed for outcome in outcomes),
    }
