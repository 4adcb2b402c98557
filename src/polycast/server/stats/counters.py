"""Counters, declared as data: name, unit, meaning and kind. Log lines, metrics and docs are derived from here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from polycast.declare import Histogram, counter, histogram


def reasons(unit: str, meaning: str) -> Any:
    """A counter for each reason."""
    return field(default_factory=Counter, metadata={"unit": unit, "meaning": meaning, "kind": "counter"})


@dataclass(slots=True)
class Counters:
    """One set per listener and dialect."""

    accepted: int = counter("connections", "connections that were opened, or came to this dialect by an upgrade")
    turned_away: int = counter("connections", "connections closed at once: no place left of limits.connections")
    open: int = counter("connections", "connections open now", kind="gauge")
    messages_in: int = counter("messages", "messages accepted from connections")
    bytes_in: int = counter("bytes", "bytes read from connections")
    messages_out: int = counter("messages", "messages handed to connections")
    bytes_out: int = counter("bytes", "bytes handed to connections")
    queue_bytes: int = counter("bytes", "bytes that wait to be sent, added up when asked for", kind="gauge")
    dropped: int = counter("messages", "messages not sent because the connection's queue was full")
    lossy: int = counter("messages", "messages sent with a payload that had to be changed")
    refused: Counter[str] = reasons("inputs", "inputs passed over, by reason; the connection stayed")
    closed: Counter[str] = reasons("connections", "connections closed by the broker, by reason")

    def summary(self) -> str:
        """The counters that are not zero, for a log line."""
        words = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Counter):
                words += [f"{f.name} {count:,} ({reason})" for reason, count in value.items()]
            elif value:
                words.append(f"{f.name} {value:,}")
        return ", ".join(words) or "nothing happened"


@dataclass(frozen=True, slots=True)
class Progress:
    """One per pipeline that reported recently."""

    pipeline_lag: int = counter("lag", "messages of the log that the pipeline has not come to yet", kind="gauge")


@dataclass(frozen=True, slots=True)
class Totals:
    """Values of the whole broker at the time of the query."""

    publishers_paused: int = counter(
        "publishers", "publishers not read for a while: over limits.total_queue_bytes"
    )
    publishers_slowed: int = counter("publishers", "publishers not read for a while: over a rate of [access]")
    receivers_paused: int = counter(
        "receivers", "connections with an unfinished frame not read for a while: over limits.total_receive_bytes"
    )
    unfinished_bytes: int = counter("bytes", "what unfinished frames take, from 4 KiB each", kind="gauge")
    copies_suppressed: int = counter("copies", "forwarded messages that were copies of one heard before")
    copies_forgotten: int = counter(
        "copies", "messages whose copies are taken for new too early: over simplest.forward_memory_messages"
    )
    topics_known: int = counter("topics", "topics remembered with their sequence", kind="gauge")
    topics_forgotten: int = counter("topics", "topics forgotten: over limits.topics")
    requests_open: int = counter("requests", "requests that wait for their answer", kind="gauge")
    log_next_offset: int = counter("offset", "offset of the message that comes next", kind="gauge")
    log_settled_offset: int = counter("offset", "everything before it is kept, or never will be", kind="gauge")
    log_pending_bytes: int = counter("bytes", "what waits to be kept", kind="gauge")
    log_groups: int = counter("groups", "groups of messages written to the log")
    log_bytes: int = counter("bytes", "bytes written to the log")
    log_messages_lost: int = counter("messages", "messages that could not be kept")
    log_failed: int = counter("log", "1 if nothing is kept any more until the next start", kind="gauge")
    log_segments_sealed: int = counter("segments", "segments turned into Parquet")
    log_segments_removed: int = counter("segments", "segments removed by retention")
    log_segments_removed_for_room: int = counter(
        "segments", "those of them that were removed because less than log.keep_free was free"
    )
    log_free_bytes: int = counter("bytes", "what is free on the file system of the log", kind="gauge")
    log_segments_quarantined: int = counter("segments", "segments put aside because they are damaged")
    log_batch_ids: int = counter("ids", "batch ids that are remembered", kind="gauge")
    log_reads_waiting: int = counter("reads", "requests for the log without a response", kind="gauge")
    log_reads_refused: int = counter("reads", "requests for the log refused: over limits.reads")
    log_reads_expired: int = counter("reads", "requests for the log that failed: over limits.read_seconds")
    log_reads_cancelled: int = counter("reads", "requests for the log cancelled: the connection closed")
    replays_open: int = counter("replays", "subscriptions that are being served from the log", kind="gauge")
    subscribers_spilled: int = counter("subscribers", "subscribers that fell behind and were served from the log")


@dataclass(frozen=True, slots=True)
class Times:
    """Histograms of the whole broker."""

    delivery_seconds: Histogram = histogram(
        "seconds", "from the read that brought a message until the connections that hear it were given it"
    )
    log_sync_seconds: Histogram = histogram("seconds", "how long the disk took to make a group of the log safe")
