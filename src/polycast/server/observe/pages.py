"""Pages of the http port: health, readiness and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from polycast.dialects.session import Page
from polycast.server.core import Core
from polycast.server.observe import metrics
from polycast.server.stats.counters import Progress, Times, Totals


def find(core: Core, path: str) -> Page | None:
    make = PAGES.get(path)
    return make(core) if make else None


def health(core: Core) -> Page:
    return Page(b"ok\n")


def readiness(core: Core) -> Page:
    """One line per reason why the broker is not ready, or `ready`, and a warning if there is one."""
    reasons = [f"the listener {name} is not open" for name in core.unopened()]
    if core.log and (trouble := core.log.write_error()):
        reasons.append(trouble)
    warning = core.log.warning() if core.log else ""
    lines = reasons or ["ready"]
    if warning:
        lines.append(f"warning: {warning}")
    return Page("".join(f"{line}\n" for line in lines).encode(), status=503 if reasons else 200)


def counted(core: Core) -> Page:
    measure_queues(core)
    counters, totals = metrics.read_counters(core.counters), metrics.read_totals(totals_of(core))
    pipelines, times = metrics.read_progress(progress_of(core)), metrics.read_times(times_of(core))
    return Page(metrics.to_text([*counters, *totals, *times, *pipelines]).encode(), metrics.CONTENT_TYPE)


def measure_queues(core: Core) -> None:
    """Sums up the queues of all connections: only they know their sizes."""
    for counters in core.counters.values():
        counters.queue_bytes = 0
    for connection in core.connections:
        connection.listener.counters.queue_bytes += connection.queued()


def progress_of(core: Core) -> dict[str, Progress]:
    """By the name of the pipeline."""
    known, log_next = core.progress.known(time.monotonic()), core.ledger.next_offset
    return {position.query: Progress(position.lag(log_next)) for _, position in known}


def times_of(core: Core) -> Times:
    delays = core.outbox.delays
    return Times(delays, core.log.writer.syncer.times) if core.log else Times(delays)


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


def _log_totals(core: Core) -> dict[str, int]:
    parts = core.log_parts
    if parts is None:
        return {}
    log, replays = parts.log, parts.replays
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


PAGES: dict[str, Callable[[Core], Page]] = {
    "/healthz": health,
    "/readyz": readiness,
    "/metrics": counted,
}
