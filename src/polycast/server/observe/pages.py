"""What is to be seen on the http port, beside the doors to WebSockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from polycast.dialects.session import Page
from polycast.server.observe import metrics
from polycast.server.observe.counters import Progress, Times, Totals

if TYPE_CHECKING:
    from polycast.server.server import Server


def find(server: Server, path: str) -> Page | None:
    make = PAGES.get(path)
    return make(server) if make else None


def health(server: Server) -> Page:
    return Page(b"ok\n")


def readiness(server: Server) -> Page:
    """One line for each reason why it is not ready; where it is ready, perhaps a warning."""
    reasons = [f"the listener {name} is not open" for name in server.unopened()]
    if server.log and (trouble := server.log.write_error()):
        reasons.append(trouble)
    warning = server.log.warning() if server.log else ""
    lines = reasons or ["ready"]
    if warning:
        lines.append(f"warning: {warning}")
    return Page("".join(f"{line}\n" for line in lines).encode(), status=503 if reasons else 200)


def counted(server: Server) -> Page:
    measure_queues(server)
    counters, totals = metrics.read_counters(server.counters), metrics.read_totals(totals_of(server))
    pipelines, times = metrics.read_progress(progress_of(server)), metrics.read_times(times_of(server))
    return Page(metrics.to_text([*counters, *totals, *times, *pipelines]).encode(), metrics.CONTENT_TYPE)


def measure_queues(server: Server) -> None:
    """What waits is known by the connections alone; it is added up when somebody asks."""
    for counters in server.counters.values():
        counters.queue_bytes = 0
    for connection in server.connections:
        connection.port.counters.queue_bytes += connection.queued()


def progress_of(server: Server) -> dict[str, Progress]:
    """By the name of the pipeline."""
    known, log_next = server.positions.known(time.monotonic()), server.exchange.hub.next_offset
    return {position.query: Progress(position.lag(log_next)) for _, position in known}


def times_of(server: Server) -> Times:
    delays = server.exchange.delays
    return Times(delays, server.log.writer.syncer.times) if server.log else Times(delays)


def totals_of(server: Server) -> Totals:
    exchange = server.exchange
    topics = exchange.hub.router.topics
    return Totals(
        publishers_paused=exchange.budget.pauses,
        publishers_slowed=exchange.slowed,
        receivers_paused=server.unfinished.waits,
        unfinished_bytes=server.unfinished.total,
        copies_suppressed=exchange.mesh.suppressed,
        copies_forgotten=exchange.mesh.forgotten,
        topics_known=len(topics),
        topics_forgotten=topics.forgotten,
        requests_open=len(exchange.requests),
        **_log_totals(server),
    )


def _log_totals(server: Server) -> dict[str, int]:
    log, replays = server.log, server.exchange.replays
    if log is None or replays is None:
        return {}
    return {
        "log_next_offset": log.next,
        "log_settled_offset": log.durable_next,
        "log_pending_bytes": log.pending_bytes,
        "log_groups": log.writer.groups,
        "log_bytes": log.writer.bytes_written,
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


PAGES: dict[str, Callable[[Server], Page]] = {
    "/healthz": health,
    "/readyz": readiness,
    "/metrics": counted,
}
