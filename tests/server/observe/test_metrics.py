"""`/metrics` exports exactly the declared metrics, with correct values."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import Field, fields
from pathlib import Path
from platform import python_version
from typing import Any

import pytest

from kit.broker import Broker
from kit.flow import MIB, Sending
from kit.frames import pub
from kit.http import get, read_response
from kit.metrics import Family, read_metrics
from kit.pages import ROOT
from kit.room import GREETING, Room
from kit.websocket import WebSocket
from kit.wire import Peer, wait_for
from polycast.client import connect, to_body
from polycast.server.observe.metrics import Declaration, metrics_of, read_counters, read_rows, to_text
from polycast.server.stats.counters import Build, Counters, NodeInfo, NodeTotals, Process, Progress, Times, Totals
from polycast.version import VERSION


def scrape(broker: Broker) -> dict[str, Family]:
    with broker.connect("http") as peer:
        return scrape_through(peer)


def scrape_through(peer: Peer) -> dict[str, Family]:
    peer.send(get("/metrics"))
    response = read_response(peer)
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read_metrics(response.body.decode())


def value(families: dict[str, Family], name: str, listener: str, dialect: str = "", **more: str) -> float:
    labels = (("listener", listener), ("dialect", dialect or listener.split(".")[0]), *more.items())
    return families[f"polycast_{name}"].samples.get(labels, 0)


# -- the declaration -------------------------------------------------------------------------------------

NAMES = {
    "accepted": "polycast_connections_accepted_total",
    "turned_away": "polycast_connections_turned_away_total",
    "open": "polycast_connections_open",
    "messages_in": "polycast_messages_in_total",
    "bytes_in": "polycast_bytes_in_total",
    "messages_out": "polycast_messages_out_total",
    "bytes_out": "polycast_bytes_out_total",
    "queue_bytes": "polycast_queue_bytes",
    "dropped": "polycast_messages_dropped_total",
    "missed": "polycast_messages_missed_total",
    "lossy": "polycast_messages_lossy_total",
    "refused": "polycast_inputs_refused_total",
    "closed": "polycast_connections_closed_total",
    "publishers_paused": "polycast_publishers_paused_total",
    "publishers_slowed": "polycast_publishers_slowed_total",
    "receivers_paused": "polycast_receivers_paused_total",
    "unfinished_bytes": "polycast_unfinished_bytes",
    "copies_suppressed": "polycast_copies_suppressed_total",
    "copies_forgotten": "polycast_copies_forgotten_total",
    "topics_known": "polycast_topics_known",
    "topics_forgotten": "polycast_topics_forgotten_total",
    "requests_open": "polycast_requests_open",
    "log_next_offset": "polycast_log_next_offset",
    "log_durable_offset": "polycast_log_durable_offset",
    "log_pending_bytes": "polycast_log_pending_bytes",
    "log_groups": "polycast_log_groups_total",
    "log_bytes": "polycast_log_bytes_total",
    "log_size_bytes": "polycast_log_size_bytes",
    "log_first_offset": "polycast_log_first_offset",
    "log_oldest_timestamp_seconds": "polycast_log_oldest_timestamp_seconds",
    "log_newest_timestamp_seconds": "polycast_log_newest_timestamp_seconds",
    "log_gaps": "polycast_log_gaps",
    "log_messages_unreadable": "polycast_log_messages_unreadable",
    "log_messages_lost": "polycast_log_messages_lost_total",
    "log_failed": "polycast_log_failed",
    "log_segments_sealed": "polycast_log_segments_sealed_total",
    "log_segments_removed": "polycast_log_segments_removed_total",
    "log_segments_removed_for_room": "polycast_log_segments_removed_for_room_total",
    "log_free_bytes": "polycast_log_free_bytes",
    "log_segments_quarantined": "polycast_log_segments_quarantined_total",
    "log_batch_ids": "polycast_log_batch_ids",
    "log_reads_waiting": "polycast_log_reads_waiting",
    "log_reads_refused": "polycast_log_reads_refused_total",
    "log_reads_expired": "polycast_log_reads_expired_total",
    "log_reads_cancelled": "polycast_log_reads_cancelled_total",
    "replays_open": "polycast_replays_open",
    "subscribers_spilled": "polycast_subscribers_spilled_total",
    "pipeline_lag": "polycast_pipeline_lag",
    "cluster_node_info": "polycast_cluster_node_info",
    "cluster_nodes": "polycast_cluster_nodes",
    "cluster_servers_connected": "polycast_cluster_servers_connected",
    "cluster_leader_known": "polycast_cluster_leader_known",
    "cluster_leaderless_seconds": "polycast_cluster_leaderless_seconds",
    "cluster_stream_sequence": "polycast_cluster_stream_sequence",
    "cluster_applied_sequence": "polycast_cluster_applied_sequence",
    "cluster_lag": "polycast_cluster_lag",
    "cluster_proposals": "polycast_cluster_proposals_total",
    "cluster_proposals_pending": "polycast_cluster_proposals_pending",
    "cluster_pending_bytes": "polycast_cluster_pending_bytes",
    "cluster_unaccepted_seconds": "polycast_cluster_unaccepted_seconds",
    "cluster_diverged": "polycast_cluster_diverged",
    "cluster_messages_foreign": "polycast_cluster_messages_foreign_total",
    "cluster_requests_forwarded": "polycast_cluster_requests_forwarded",
    "delivery_seconds": "polycast_delivery_seconds",
    "loop_delay_seconds": "polycast_loop_delay_seconds",
    "build_info": "polycast_build_info",
    "cpu_seconds": "process_cpu_seconds_total",
    "resident_memory_bytes": "process_resident_memory_bytes",
    "open_fds": "process_open_fds",
    "max_fds": "process_max_fds",
    "start_time_seconds": "process_start_time_seconds",
    "log_sync_seconds": "polycast_log_sync_seconds",
}
"""Users depend on these names: add new ones here, never rename existing ones."""

DECLARATIONS: tuple[Declaration, ...] = (Counters, Totals, Progress, NodeInfo, NodeTotals, Times, Build, Process)
DECLARED: list[Field[Any]] = [f for declaration in DECLARATIONS for f in fields(declaration)]


def test_names() -> None:
    found = [item for declaration in DECLARATIONS for item in metrics_of(declaration).items()]
    assert {name: metric.name for name, metric in found} == NAMES


def test_exactly_the_declared_metrics_are_exported(broker: Broker) -> None:
    families = scrape(broker)
    expected = {NAMES[f.name]: (f.metadata["kind"], f.metadata["meaning"]) for f in DECLARED}
    assert {name: (family.kind, family.help) for name, family in families.items()} == expected


def test_counters_and_only_they_end_in_total(broker: Broker) -> None:
    for name, family in scrape(broker).items():
        assert name.endswith("_total") == (family.kind == "counter")


def test_every_listener_has_every_counter(broker: Broker) -> None:
    families = scrape(broker)
    listeners = {name for name, _ in broker.addresses}
    for f in fields(Counters):
        labels = [dict(each) for each in families[NAMES[f.name]].samples]
        if f.default_factory is Counter:
            assert all(set(each) == {"listener", "dialect", "reason"} for each in labels)
        else:
            assert {each["listener"] for each in labels} == listeners
            assert all(set(each) == {"listener", "dialect"} for each in labels)
    for f in fields(Totals):
        assert list(families[NAMES[f.name]].samples) == [()]


ROW = re.compile(r"^\| `((?:polycast|process)_\w+)` \| (\w+) \| \w+ \| (.*?) \| (.*) \|$", re.MULTILINE)


def test_the_page_in_the_docs_lists_all_metrics() -> None:
    """Name, kind, labels and description of every metric."""
    written = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, meaning in ROW.findall((ROOT / "docs" / "reference" / "metrics.md").read_text())
    }
    with Broker() as broker, broker.connect("simplest") as bad:
        bad.send(b"nonsense\npub a x\n")
        bad.expect_closed()
        with connect("ubre", f"ws://127.0.0.1:{broker.ports['http']}/ubre") as client:
            client.request("polycast/positions", to_body({"query": "some", "offset": 0}))
        families = scrape(broker)
    found = {
        name: (family.kind, {label for labels in family.samples for label, _ in labels}, family.help)
        for name, family in families.items()
    }
    kind, labels, meaning = written["polycast_cluster_node_info"]
    assert labels == {"node", "stream"}
    written["polycast_cluster_node_info"] = kind, set(), meaning  # a single broker has no sample of it
    assert found == written


@pytest.mark.parametrize("odd", ['"', "\\", "\n", '\\n"}', "é", ',x="y', ""])
def test_odd_labels_are_read_as_they_were(odd: str) -> None:
    counters = Counters(messages_in=7)
    counters.refused[odd] = 3
    families = read_metrics(to_text([*read_counters({(odd, "d"): counters}), *read_rows(Totals, {(): Totals()})]))
    assert families["polycast_messages_in_total"].samples == {(("listener", odd), ("dialect", "d")): 7}
    refused = families["polycast_inputs_refused_total"].samples
    assert refused == {(("listener", odd), ("dialect", "d"), ("reason", odd)): 3}


def test_the_process() -> None:
    """What the system says about it."""
    with Broker() as broker, broker.connect("http") as peer:
        before, folder = scrape_through(peer), Path(f"/proc/{broker.process.pid}")
        assert before["polycast_build_info"].samples == {(("version", VERSION), ("python", python_version())): 1}
        assert before["process_open_fds"].samples[()] == len(list((folder / "fd").iterdir()))
        assert before["process_resident_memory_bytes"].samples[()] > 10 * MIB
        assert 0 < before["process_start_time_seconds"].samples[()] <= time.time()
        wait_for(lambda: scrape_through(peer)["polycast_loop_delay_seconds"].counts[()] >= 3, "measurements")
        after = scrape_through(peer)
        assert after["process_cpu_seconds_total"].samples[()] > before["process_cpu_seconds_total"].samples[()]


# -- values ----------------------------------------------------------------------------------------------


def test_messages_and_bytes() -> None:
    with Broker() as broker, Room(broker) as room:
        before = scrape(broker)
        subscriber = room.connect("simplest")
        room.send_commands(subscriber, b"sub count\n")
        frames = pub("count", b"x" * 10) * 5
        publisher = room.connect("simplest")
        publisher.send(frames)
        subscriber.expect(frames)
        after = scrape(broker)
        fence = pub("polycast/fence", b"1")
        grown = {
            "connections_accepted_total": 2,
            "connections_open": 2,
            "messages_in_total": 6,
            "bytes_in_total": len(b"sub count\n" + frames + fence),
            "messages_out_total": 5,
            "bytes_out_total": len(frames),
        }
        found = {name: value(after, name, "simplest") - value(before, name, "simplest") for name in grown}
        assert found == grown
        assert after["polycast_topics_known"].samples[()] == 2


def test_lossy_refused_and_closed_by_reason() -> None:
    with Broker() as broker, Room(broker) as room:
        client = room.client(b"subscribe lossy\n")
        room.simplest(pub("lossy", b"a\nb") + b"nonsense\n" * 3)
        client.expect(b"lossy!a\\nb\n")
        bad = room.connect("simplest")
        bad.send(b"pub a x\n")
        bad.expect_closed()
        families = scrape(broker)
        assert value(families, "messages_lossy_total", "fanout.client") == 1
        assert value(families, "inputs_refused_total", "simplest", reason="unknown command") == 3
        assert value(families, "connections_closed_total", "simplest", reason="protocol") == 1


def test_a_connection_is_counted_under_what_it_speaks() -> None:
    with Broker(listen=("http", "simplest")) as broker, WebSocket(broker.ports["http"]) as socket:
        socket.flush()
        families = scrape(broker)
        assert value(families, "connections_open", "http", "ubre") == 1
        assert value(families, "connections_open", "http", "http") == 1
        socket.close()
        gone = lambda: value(scrape(broker), "connections_open", "http", "ubre") == 0  # noqa: E731
        wait_for(gone, "the end of the WebSocket")


def test_queued_bytes_are_measured() -> None:
    with Broker("--set=limits.queue_bytes=67108864") as broker, Room(broker) as room:
        assert value(scrape(broker), "queue_bytes", "simplest") == 0
        slow = room.simplest(b"sub slow\n", receive_bytes=4096)
        sending = Sending(room.connect("simplest"), pub("slow", b"x" * MIB) * 12)
        wait_for(lambda: value(scrape(broker), "queue_bytes", "simplest") > 2 * MIB, "a queue")
        sending.finish()
        slow.close()
        wait_for(lambda: value(scrape(broker), "queue_bytes", "simplest") == 0, "its end")


def test_rejected_connections() -> None:
    listen = ("http", "simplest", "fanout.client")
    with Broker("--set=limits.connections=2", listen=listen) as broker:
        with broker.connect("http") as scraper, broker.connect("fanout.client") as client:
            client.expect(GREETING)
            scrape_through(scraper)
            for _ in range(3):
                with broker.connect("simplest") as late:
                    assert late.expect_closed() == b""
            families = scrape_through(scraper)
        assert value(families, "connections_turned_away_total", "simplest") == 3
        assert value(families, "connections_accepted_total", "simplest") == 0
