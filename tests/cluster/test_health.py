"""What a node reports of itself: metrics, readiness, listings, and the status of a cluster without servers."""

from __future__ import annotations

import json
import time

import pytest

from cluster.trio import PATIENCE
from kit.broker import Broker
from kit.http import get, read_response
from kit.metrics import Family, read_metrics
from kit.nats import Servers
from kit.program import polycast
from kit.replay import publish
from kit.subscribers import open_simplest, send_request
from kit.wire import wait_for
from polycast.cluster.health import ELECTION_SECONDS, KNOWN_SECONDS, ClusterHealth, NodeProgress
from polycast.cluster.stream import Agreed, Genesis, StreamInfo

FAST_SECONDS = 4.0
"""A status waits for the stream for a second; the rest is the start of the command."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def to_info(last: int, leader: str = "s0") -> StreamInfo:
    return StreamInfo("S 1", 1, last, leader, [], Agreed("1", "1", "1", "1"), Genesis(), {})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> ClusterHealth:
    return ClusterHealth("S", 7, clock)


def test_an_election_is_no_reason_and_a_longer_time_without_a_leader_is(
    clock: Clock, health: ClusterHealth
) -> None:
    clock.now += KNOWN_SECONDS - 0.1
    assert health.totals().cluster_leader_known == 1
    clock.now += 1.1
    assert (health.totals().cluster_leader_known, health.totals().cluster_leaderless_seconds) == (0, 6.0)
    assert health.reasons() == []
    health.note(to_info(8, leader=""))
    clock.now += ELECTION_SECONDS - 5.0
    assert health.reasons() == ["the stream S has no leader for 11 s: publishers wait, nothing is acknowledged"]
    health.note(to_info(9))
    assert health.reasons() == []
    assert health.totals().cluster_leaderless_seconds == 0


def test_a_leader_without_a_majority_is_none(clock: Clock, health: ClusterHealth) -> None:
    """Its server responds for some more seconds, and accepts nothing."""
    clock.now += ELECTION_SECONDS + 1.0
    health.note(to_info(8)._replace(confirmed=False))
    assert health.reasons() == ["the stream S has no leader for 11 s: publishers wait, nothing is acknowledged"]


def test_a_lost_connection_is_noticed_at_once(clock: Clock, health: ClusterHealth) -> None:
    health.is_connected = lambda: False
    clock.now += 1.0
    assert (health.totals().cluster_servers_connected, health.totals().cluster_leader_known) == (0, 0)
    clock.now += ELECTION_SECONDS
    assert "no server of the cluster can be reached for 11 s" in health.reasons()[0]


def test_servers_that_accept_nothing_are_a_reason_with_the_cure(health: ClusterHealth) -> None:
    health.progress = lambda: NodeProgress(7, 1, 10, ELECTION_SECONDS + 1, 0)
    assert "they do not respond to it" in health.reasons()[0]
    health.last_error = lambda: Exception('nats: permissions violation for publish to "s.log"')
    assert "its user needs the permissions to publish and subscribe to S.>" in health.reasons()[0]


def test_lag_and_divergence(health: ClusterHealth) -> None:
    health.progress = lambda: NodeProgress(3, 2, 10, 0.0, 1)
    found = health.totals()
    assert (found.cluster_lag, found.cluster_stream_sequence, found.cluster_applied_sequence) == (4, 7, 3)
    assert (found.cluster_proposals_pending, found.cluster_messages_foreign) == (2, 1)
    assert (found.cluster_diverged, health.warnings()) == (0, [])
    health.different = {"c", "b"}
    assert health.totals().cluster_diverged == 1
    assert "the tables of this node and of b, c are different" in health.warnings()[0]


# -- nodes -----------------------------------------------------------------------------------------------


def page(node: Broker, path: str) -> tuple[int, str]:
    with node.connect("http") as peer:
        peer.send(get(path))
        response = read_response(peer)
        return response.status, response.body.decode()


def scrape(node: Broker) -> dict[str, Family]:
    return read_metrics(page(node, "/metrics")[1])


def value(node: Broker, name: str) -> float:
    return scrape(node)[f"polycast_cluster_{name}"].samples[()]


def test_metrics_and_listings_name_the_node(nodes: tuple[Broker, Broker]) -> None:
    first, second = nodes
    with open_simplest(second, "t", 0), first.connect("hermod.pub") as peer:
        publish(peer, [("t", b"1"), ("t", b"2")])
        wait_for(lambda: value(first, "nodes") == 2, "both nodes")
        wait_for(lambda: value(second, "applied_sequence") >= 1 and not value(second, "lag"), "both messages")
        assert scrape(first)["polycast_cluster_node_info"].samples == {(("node", "a"), ("stream", "POLYCAST")): 1}
        expected = {"leader_known": 1, "servers_connected": 1, "diverged": 0, "leaderless_seconds": 0}
        assert {name: value(first, name) for name in expected} == expected
        wait_for(lambda: value(first, "stream_sequence") == value(second, "stream_sequence"), "the same stream")
        assert page(first, "/readyz") == (200, "ready\n")
        assert value(first, "proposals_total") > value(second, "proposals_total") == 0
        assert value(first, "proposals_pending") == 0

        def listed() -> bool:
            found = send_request(first, "polycast/topics", {"topic": "t"})
            assert found["node"] == "a"
            return bool(found["topics"][0]["nodes"] == {"b": 1} and found["topics"][0]["subscribers"] == 1)

        wait_for(listed, "the subscriber of the other node")
        wait_for(lambda: value(second, "nodes") == 2, "both nodes")
        found = send_request(second, "polycast/connections")
        assert found["node"] == "b"
        assert {row["node"] for row in found["connections"]} == {"a", "b"}
        assert send_request(second, "polycast/stats")["node"] == "b"


def test_without_servers_a_node_says_so_soon(nodes: tuple[Broker, Broker], servers: Servers) -> None:
    first, _ = nodes
    servers.kill(0)
    wait_for(lambda: not value(first, "leader_known"), "the loss of the leader", PATIENCE)
    assert value(first, "servers_connected") == 0
    at = f"http://127.0.0.1:{first.ports['http']}"
    began = time.monotonic()
    finished = polycast("cluster", "status", "--at", at)
    assert time.monotonic() - began < FAST_SECONDS
    assert finished.code == 0
    assert (
        "no server of the cluster can be reached: publishers wait, nothing is acknowledged"
        in finished.out.decode()
    )
    found = json.loads(polycast("cluster", "status", "--json", "--at", at).out)
    assert found["stream"]["leader"] is None
    assert [row["node"] for row in found["nodes"]] == ["a"]
    wait_for(lambda: page(first, "/readyz")[0] == 503, "a reason", PATIENCE)
    assert page(first, "/readyz")[1].startswith("no server of the cluster can be reached for")
    servers.start(0)
    wait_for(lambda: page(first, "/readyz") == (200, "ready\n"), "a leader again", PATIENCE)
    assert value(first, "leaderless_seconds") == 0


def test_a_node_without_servers_stops_cleanly(nodes: tuple[Broker, Broker], servers: Servers) -> None:
    """With a request to the servers that was never sent."""
    servers.kill(0)
    wait_for(lambda: "error" in send_request(nodes[0], "polycast/cluster")["stream"], "a node without servers")
    assert nodes[0].stop() == 0, nodes[0].log()


def test_a_single_broker_is_not_a_node() -> None:
    with Broker(listen=("http",)) as single:
        for command in ("status", "verify", "leave"):
            refused = polycast("cluster", command, f"--at=http://127.0.0.1:{single.ports['http']}")
            assert refused.code == 1
            assert "this broker is not a node of a cluster" in refused.err
