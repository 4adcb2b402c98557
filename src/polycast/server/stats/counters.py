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

    accepted: int = counter("connections", "connections accepted, including upgrades to this dialect")
    turned_away: int = counter("connections", "connections closed on accept: over limits.connections")
    open: int = counter("connections", "open connections", kind="gauge")
    messages_in: int = counter("messages", "messages accepted from connections")
    bytes_in: int = counter("bytes", "bytes read from connections")
    messages_out: int = counter("messages", "messages delivered to connections")
    bytes_out: int = counter("bytes", "bytes sent to connections")
    queue_bytes: int = counter("bytes", "bytes queued for connections", kind="gauge")
    dropped: int = counter("messages", "messages dropped because the connection's queue was full")
    missed: int = counter(
        "messages", "offsets requested by subscribers that the log cannot deliver: damaged, removed or not durable"
    )
    lossy: int = counter(
        "messages", "messages delivered with a payload that the dialect could not carry unchanged"
    )
    refused: Counter[str] = reasons("inputs", "inputs refused, by reason; the connection stays open")
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

    pipeline_lag: int = counter("lag", "messages in the log that the pipeline has not processed", kind="gauge")


@dataclass(frozen=True, slots=True)
class Totals:
    """Values of the whole broker at the time of the query."""

    publishers_paused: int = counter("publishers", "times a publisher was paused: over limits.total_queue_bytes")
    publishers_slowed: int = counter("publishers", "times a publisher was paused: over a rate limit of [access]")
    receivers_paused: int = counter(
        "receivers", "times a connection with an incomplete frame was paused: over limits.total_receive_bytes"
    )
    unfinished_bytes: int = counter("bytes", "memory for incomplete frames of 4 KiB and more", kind="gauge")
    copies_suppressed: int = counter("copies", "forwarded messages dropped as duplicates")
    copies_forgotten: int = counter(
        "copies", "messages no longer checked for duplicates: over simplest.forward_memory_messages"
    )
    topics_known: int = counter("topics", "topics whose sequence is remembered", kind="gauge")
    topics_forgotten: int = counter("topics", "topics forgotten: over limits.topics")
    requests_open: int = counter("requests", "requests without a response", kind="gauge")
    log_next_offset: int = counter("offset", "offset of the next message", kind="gauge")
    log_durable_offset: int = counter(
        "offset", "all messages before this offset are durable or lost", kind="gauge"
    )
    log_pending_bytes: int = counter("bytes", "bytes not yet durable", kind="gauge")
    log_groups: int = counter("groups", "group commits written to the log")
    log_bytes: int = counter("bytes", "bytes written to the log")
    log_size_bytes: int = counter("bytes", "size of the log, without space allocated ahead", kind="gauge")
    log_first_offset: int = counter("offset", "offset of the oldest message", kind="gauge")
    log_oldest_timestamp_seconds: float = counter(
        "seconds", "time of the oldest message, since the epoch; 0 without messages", kind="gauge"
    )
    log_newest_timestamp_seconds: float = counter(
        "seconds", "time of the newest message, since the epoch; 0 without messages", kind="gauge"
    )
    log_gaps: int = counter("gaps", "gaps that the log records, as polycast log info lists them", kind="gauge")
    log_messages_unreadable: int = counter(
        "messages", "offsets of the log whose messages are lost to damage", kind="gauge"
    )
    log_messages_lost: int = counter("messages", "messages that the log could not write")
    log_failed: int = counter(
        "log", "1: the log has failed, nothing is durable until the next start", kind="gauge"
    )
    log_segments_sealed: int = counter("segments", "segments sealed to Parquet")
    log_segments_removed: int = counter("segments", "segments removed by retention")
    log_segments_removed_for_room: int = counter(
        "segments", "segments removed because less than log.keep_free was free"
    )
    log_free_bytes: int = counter("bytes", "free bytes on the file system of the log", kind="gauge")
    log_segments_quarantined: int = counter("segments", "damaged segments put into quarantine")
    log_batch_ids: int = counter("ids", "batch ids remembered", kind="gauge")
    log_reads_waiting: int = counter("reads", "pending reads of the log", kind="gauge")
    log_reads_refused: int = counter("reads", "reads of the log refused: over limits.reads")
    log_reads_expired: int = counter("reads", "reads of the log that timed out: over limits.read_seconds")
    log_reads_cancelled: int = counter("reads", "reads of the log cancelled: the connection closed")
    replays_open: int = counter("replays", "subscriptions served from the log", kind="gauge")
    subscribers_spilled: int = counter("subscribers", "times a subscriber fell behind and was served from the log")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of a cluster; a single broker has none."""

    cluster_node_info: int = counter("info", "1, with the names of the node and of the stream", kind="gauge")


@dataclass(frozen=True, slots=True)
class NodeTotals:
    """Values of a node of a cluster; a single broker has none."""

    cluster_nodes: int = counter("nodes", "nodes that run, this one included", kind="gauge")
    cluster_servers_connected: int = counter(
        "servers", "1: the node is connected to a server; 0: no server can be reached", kind="gauge"
    )
    cluster_leader_known: int = counter(
        "leader", "1: the stream has a leader; 0: publishers wait, and nothing is acknowledged", kind="gauge"
    )
    cluster_leaderless_seconds: float = counter(
        "seconds", "time since a leader of the stream was last known; 0 with a leader", kind="gauge"
    )
    cluster_stream_sequence: int = counter(
        "sequence", "stream sequence of the last message of the stream, checked every 2 s", kind="gauge"
    )
    cluster_applied_sequence: int = counter(
        "sequence", "stream sequence of the last message that the node has applied", kind="gauge"
    )
    cluster_lag: int = counter("lag", "messages of the stream that the node has not applied", kind="gauge")
    cluster_proposals: int = counter("proposals", "proposals of the node: bursts and commits")
    cluster_proposals_pending: int = counter(
        "proposals", "proposals of the node that are not applied yet", kind="gauge"
    )
    cluster_pending_bytes: int = counter(
        "bytes", "size of these proposals; publishers are paused over cluster.pending_bytes", kind="gauge"
    )
    cluster_unaccepted_seconds: float = counter(
        "seconds", "time since the servers accept no message of the node; 0: they do", kind="gauge"
    )
    cluster_diverged: int = counter(
        "diverged", "1: the table of the node is not the same as that of another node", kind="gauge"
    )
    cluster_messages_foreign: int = counter(
        "messages", "messages of the stream that no node published; all nodes skip them"
    )
    cluster_requests_forwarded: int = counter(
        "requests", "requests to routes of other nodes without a response", kind="gauge"
    )


@dataclass(frozen=True, slots=True)
class Times:
    """Histograms of the whole broker."""

    delivery_seconds: Histogram = histogram(
        "seconds", "from reading a message to delivering it to its subscribers' connections"
    )
    loop_delay_seconds: Histogram = histogram(
        "seconds",
        "how late the event loop runs a timer, measured ten times a second",
    )
    log_sync_seconds: Histogram = histogram("seconds", "duration of the fsync of one group commit")


@dataclass(frozen=True, slots=True)
class Build:
    """The program."""

    build_info: int = counter("info", "1, with the versions of Polycast and Python", kind="gauge")


@dataclass(frozen=True, slots=True)
class Process:
    """The process of the broker, under the names that all exporters of Prometheus use."""

    cpu_seconds: float = counter("seconds", "CPU time used, in user and system mode")
    resident_memory_bytes: int = counter("bytes", "memory in RAM; 0 if unknown", kind="gauge")
    open_fds: int = counter("fds", "open file descriptors; 0 if unknown", kind="gauge")
    max_fds: int = counter("fds", "limit of open file descriptors; 0: none", kind="gauge")
    start_time_seconds: float = counter("seconds", "start of the process, since the epoch", kind="gauge")
