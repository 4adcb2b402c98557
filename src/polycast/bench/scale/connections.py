"""Idle connections: what the broker takes to accept and to hold them, and live traffic beside them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from polycast.bench.cells import Cell
from polycast.bench.scale.broker_process import run_broker
from polycast.bench.scale.cycle import LISTENERS, SUBSCRIBE
from polycast.bench.scale.points import Values, per_unit
from polycast.bench.scale.throughput import DIALECT, run_turns, summarize
from polycast.errors import RemoteError

HOLDER = [sys.executable, "-m", "polycast.bench.scale.idle_connections"]
HOLDER_LIMIT = 10_000
"""Connections of one process, and of one source address."""
SOURCE_FORMAT = "127.0.0.{}"
FIRST_SOURCE = 2
LIVE = Cell("1:1", "1 topic, 1 subscriber")
ERROR_END_LIMIT = 300


def measure_connections(count: int, seconds: float) -> Values:
    with run_broker([*LISTENERS, DIALECT]) as broker, ExitStack() as stack:
        before = broker.memory()
        took = sum(
            stack.enter_context(_hold(broker.ports[SUBSCRIBE], share, SOURCE_FORMAT.format(FIRST_SOURCE + index)))
            for index, share in enumerate(shares(count))
        )
        memory = broker.memory()
        live = summarize(LIVE, run_turns(broker, LIVE, seconds))
        return {
            **live,
            "accept_seconds": took,
            "accepted": count / took,
            "unit_bytes": per_unit(before, memory, count),
            "memory": memory,
        }


def shares(count: int) -> list[int]:
    """The connections of each process."""
    full, rest = divmod(count, HOLDER_LIMIT)
    return [HOLDER_LIMIT] * full + ([rest] if rest else [])


@contextmanager
def _hold(port: int, count: int, source: str) -> Iterator[float]:
    """The seconds until all were open."""
    command = [*HOLDER, str(port), str(count), source]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as holder:
        assert holder.stdout and holder.stderr
        try:
            took = holder.stdout.readline()
            if not took:
                error_end = holder.stderr.read().decode(errors="replace").strip()[-ERROR_END_LIMIT:]
                raise RemoteError(f"could not open {count:,} connections from {source}: {error_end}")
            yield float(took)
        finally:
            holder.kill()
