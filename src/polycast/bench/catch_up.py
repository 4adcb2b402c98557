"""Catching up: an empty node joins a cluster whose stream has `stored` messages.

    start three servers and one node, publish the messages once, and as many bytes to a stream of the reader
    each round:  an empty node joins: from its first read until it has applied everything, as its log says
                 a bare reader of its stream (see `stream_reader`), first in every other round

The start of the node's process is in the CPU time, and not in the time. The node must have as many messages as the
first node in the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from polycast.bench.acked_publishing import fill
from polycast.bench.cells import Cell
from polycast.bench.cpu_time import measure_cpu_time
from polycast.bench.driver_process import run_driver
from polycast.bench.job import Job, Outcome
from polycast.bench.log_counters import read_log_counters
from polycast.bench.report import CellReport
from polycast.bench.server_cluster import SIZE, run_servers
from polycast.bench.target_process import await_ready, launch, stop, temporary_folder
from polycast.bench.targets import (
    FENCE_LISTENER,
    JETSTREAM_ALWAYS,
    METRICS_LISTENER,
    NATS,
    find_program,
    is_ready,
    node_command,
    read_listening,
    run_node,
    server_urls,
)
from polycast.errors import PolycastError, StartError

NODE, READER = "node", "reader"
TARGETS = (NODE, READER)
APPLIED_LIMIT_SECONDS = 600.0
POLL_SECONDS = 0.01
CAUGHT_UP = re.compile(r"caught up: .* in ([0-9.]+) s")
STREAM_BYTES = 1024 * 1024 * 1024
LISTENERS = (FENCE_LISTENER, METRICS_LISTENER)


def measure_catch_up(
    cell: Cell, rounds: int, scratch: Path | None, show: Callable[[str, str], None]
) -> CellReport:
    outcomes: dict[str, list[Outcome]] = {name: [] for name in TARGETS}
    try:
        _measure_rounds(cell, rounds, scratch, show, outcomes)
    except (PolycastError, OSError) as error:
        for name in TARGETS:
            outcomes[name] += [Outcome(error=str(error))] * (rounds - len(outcomes[name]))
    return CellReport(cell, outcomes, ours=(NODE,))


def _measure_rounds(
    cell: Cell,
    rounds: int,
    scratch: Path | None,
    show: Callable[[str, str], None],
    outcomes: dict[str, list[Outcome]],
) -> None:
    program = find_program(NATS.program)
    if program is None:
        raise StartError(f"{NATS.program} is not installed", hint=NATS.cure)
    from polycast.bench.stream_reader import fill_stream  # needs nats-py, of the extra `cluster`

    with (
        temporary_folder(scratch) as folder,
        run_servers(JETSTREAM_ALWAYS, program, folder) as (servers, processes),
        run_node("first", server_urls(servers), LISTENERS, folder / "first", [_max_bytes(cell)]) as first,
    ):
        ports = read_listening(first.output)
        fill(cell, ports[FENCE_LISTENER])
        fill_stream(cell, servers[0], SIZE)
        messages = read_log_counters(ports[METRICS_LISTENER]).messages
        job = Job("jetstream", servers[0], servers[0], cell, seconds=0.0, processes=tuple(processes))
        for number in range(rounds):
            for name in TARGETS if number % 2 else reversed(TARGETS):
                show(cell.name, name)
                home = folder / f"node{number}"
                outcomes[name].append(
                    run_driver(job) if name == READER else _join(cell, server_urls(servers), home, messages)
                )


def _max_bytes(cell: Cell) -> str:
    """The stream must not remove anything: a node would copy a log instead of reading the stream."""
    return f"cluster.max_bytes={STREAM_BYTES + 2 * cell.stored * cell.message_bytes}"


def _join(cell: Cell, urls: str, home: Path, messages: int) -> Outcome:
    home.mkdir()
    process = launch([*node_command(home.name, urls, LISTENERS, home), "--verbose"], home)
    try:
        output = await_ready(process, home, is_ready, POLL_SECONDS, APPLIED_LIMIT_SECONDS)
        _await_messages(read_listening(output)[METRICS_LISTENER], messages)
        cpu = measure_cpu_time((process.pid,))._replace(driver=0.0)
        return Outcome(cell.stored, delivered=cell.stored, elapsed=_read_seconds(output), cpu=cpu)
    except (PolycastError, OSError) as error:
        return Outcome(error=str(error))
    finally:
        stop(process)


def _read_seconds(output: str) -> float:
    found = CAUGHT_UP.search(output)
    if not found:
        raise StartError("the node does not say how long it read the stream")
    return float(found[1])


def _await_messages(port: int, messages: int) -> None:
    deadline = monotonic() + APPLIED_LIMIT_SECONDS
    while (applied := read_log_counters(port).messages) < messages:
        if monotonic() > deadline:
            limit = f"{APPLIED_LIMIT_SECONDS:g} s"
            raise StartError(f"the node has applied {applied:,} of {messages:,} messages within {limit}")
        sleep(POLL_SECONDS)
