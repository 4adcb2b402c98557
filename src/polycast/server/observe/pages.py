"""Pages of the http listener: health, readiness, metrics, and the listeners for clients."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address
from itertools import chain
from typing import Any

from polycast.dialects.guard import Guard
from polycast.dialects.registry import ROLES
from polycast.dialects.session import Page
from polycast.log.times import MICROS
from polycast.server.core import Core
from polycast.server.observe import metrics
from polycast.server.observe.metrics import Metric, Sample
from polycast.server.stats.counters import Build, NodeInfo, NodeTotals, Process, Progress, Times, Totals
from polycast.server.stats.process import measure_process
from polycast.version import VERSION


def find(core: Core, path: str) -> Page | None:
    make = PAGES.get(path)
    return make(core) if make else None


def health(core: Core) -> Page:
    return Page(b"ok\n")


def readiness(core: Core) -> Page:
    """One line per reason why the broker is not ready, or `ready`, and one per warning."""
    reasons = [f"the listener {name} is not open" for name in core.unopened()]
    if core.log and (trouble := core.log.write_error()):
        reasons.append(trouble)
    warnings = core.log.warnings() if core.log else []
    if core.node_health:
        reasons += core.node_health.reasons()
        warnings = [*warnings, *core.node_health.warnings()]
    lines = [*(reasons or ["ready"]), *(f"warning: {warning}" for warning in warnings)]
    return Page("".join(f"{line}\n" for line in lines).encode(), status=503 if reasons else 200)


def counted(core: Core) -> Page:
    measure_queues(core)
    python = ".".join(map(str, sys.version_info[:3]))
    families = (
        metrics.read_counters(core.counters),
        metrics.read_rows(Totals, {(): totals_of(core)}),
        metrics.read_times(times_of(core)),
        metrics.read_rows(Progress, progress_of(core)),
        *_node_families(core),
        metrics.read_rows(Build, {(VERSION, python): Build(1)}),
        metrics.read_rows(Process, {(): measure_process()}),
    )
    return Page(metrics.to_text(chain.from_iterable(families)).encode(), metrics.CONTENT_TYPE)


def _node_families(core: Core) -> list[Iterator[tuple[Metric, list[Sample]]]]:
    """Without samples for a single broker."""
    health = core.node_health
    info: dict[metrics.Labels, NodeInfo] = {(core.node, health.stream): NodeInfo(1)} if health else {}
    totals: dict[metrics.Labels, NodeTotals] = {(): health.totals()} if health else {}
    return [metrics.read_rows(NodeInfo, info), metrics.read_rows(NodeTotals, totals)]


def listeners(core: Core, guard: Guard, host: str) -> Page | None:
    """The addresses of the listeners of all dialects that the peer has a right in; None: there are none.

    Socket files are left out, and so are the listeners for other brokers.
    """
    found: dict[str, list[str]] = {}
    for name, address in core.addresses:
        role = ROLES[name]
        if address.scheme != "ipc" and not role.link and guard.may_use(role.dialect):
            reachable = replace(address, options={}, host=host if host and _is_any(address.host) else address.host)
            found.setdefault(name, []).append(str(reachable))
    if not found:
        return None
    body = {"node": core.node, "version": VERSION, "listeners": found}
    return Page(json.dumps(body).encode() + b"\n", "application/json")


def _is_any(host: str) -> bool:
    """Whether the host is a wildcard, such as 0.0.0.0."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def measure_queues(core: Core) -> None:
    """Sums up the queues of all connections: only they know their sizes."""
    for counters in core.counters.values():
        counters.queue_bytes = 0
    for connection in core.connections:
        connection.listener.counters.queue_bytes += connection.queued()


def progress_of(core: Core) -> dict[tuple[str, ...], Progress]:
    """By the name of the pipeline."""
    known, log_next = core.progress.known(time.monotonic()), core.ledger.next_offset
    return {(position.query,): Progress(position.lag(log_next)) for _, position in known}


def times_of(core: Core) -> Times:
    delays = core.outbox.delays, core.loop_delays
    return Times(*delays, core.log.writer.syncer.times) if core.log else Times(*delays)


def totals_of(core: Core) -> Totals:
    topics = core.ledger.topics
    return Totals(
        publishers_paused=core.budget.pauses,
        publishers_slowed=core.publishing.slowed,
        receivers_paused=core.partial_frames.waits,
        unfinished_bytes=core.partial_frames.total,
        copies_suppressed=core.mesh.suppressed,
        copies_forgotten=core.mesh.forgotten,
        topics_known=len(topics),
        topics_forgotten=topics.forgotten,
        requests_open=len(core.requests),
        **_log_totals(core),
    )


def _log_totals(core: Core) -> dict[str, Any]:
    parts = core.log_parts
    if parts is None:
        return {}
    log, replays = parts.log, parts.replays
    inventory = log.housekeeping.inventory
    return {
        "log_next_offset": log.next,
        "log_durable_offset": log.durable_next,
        "log_pending_bytes": log.pending_bytes,
        "log_groups": log.writer.groups,
        "log_bytes": log.writer.bytes_written,
        "log_size_bytes": inventory.size,
        "log_first_offset": log.next if inventory.first is None else inventory.first,
        "log_oldest_timestamp_seconds": inventory.oldest_micros / MICROS,
        "log_newest_timestamp_seconds": log.micros / MICROS,
        "log_gaps": len(inventory.gaps),
        "log_messages_unreadable": inventory.messages_unreadable,
        "log_messages_lost": log.messages_lost,
        "log_failed": int(bool(log.writer.failed)),
        "log_segments_sealed": log.housekeeping.segments_sealed,
        "log_segments_removed": log.housekeeping.segments_removed,
        "log_segments_removed_for_room": log.housekeeping.removed_for_room,
        "log_free_bytes": log.free_bytes(),
        "log_segments_quarantined": log.housekeeping.segments_quarantined,
        "log_batch_ids": len(log.batches),
        "log_reads_waiting": replays.readers.waiting,
        "log_reads_refused": replays.readers.refused,
        "log_reads_expired": replays.readers.expired,
        "log_reads_cancelled": replays.readers.cancelled,
        "replays_open": replays.count,
        "subscribers_spilled": replays.spills,
    }


PAGES: dict[str, Callable[[Core], Page]] = {
    "/healthz": health,
    "/readyz": readiness,
    "/metrics": counted,
}
