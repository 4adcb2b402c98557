"""Publishers without acknowledgements while the stream has no leader: they are slowed, and nothing is lost. Past
the limits, what is lost is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.trio import LISTEN, PATIENCE, WRITTEN_AT_ONCE, read_table
from kit import hermod
from kit.broker import Broker
from kit.flow import MIB, Sending
from kit.frames import pub
from kit.http import get, read_response
from kit.metrics import read_metrics
from kit.nats import Servers
from kit.replay import publish
from kit.wire import wait_for

BEHIND = "the log is behind"
FILLING = b"x" * 1000


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with Servers(tmp_path / "nats", 1) as running:
        yield running


@pytest.fixture
def node(servers: Servers, tmp_path: Path) -> Iterator[Broker]:
    flags = [f"--cluster={servers.urls}", "--node=a", "--set=cluster.pending_bytes=1MiB"]
    with Broker(*flags, WRITTEN_AT_ONCE, listen=LISTEN, data=tmp_path / "a") as started:
        yield started


def metric(node: Broker, name: str, **labels: str) -> float:
    with node.connect("http") as peer:
        peer.send(get("/metrics"))
        family = read_metrics(read_response(peer).body.decode())[name]
    return sum(value for found, value in family.samples.items() if labels.items() <= dict(found).items())


def refused(node: Broker) -> float:
    return metric(node, "polycast_inputs_refused_total", reason=BEHIND)


def accepted(node: Broker) -> float:
    return metric(node, "polycast_messages_in_total", listener="simplest")


def to_messages(name: str, count: int) -> bytes:
    return b"".join(pub(name, b"%d %b" % (number, FILLING)) for number in range(count))


def numbers_of(folder: Path, topic: str) -> list[int]:
    table = read_table(folder / "log")
    rows = zip(table["topic"].to_pylist(), table["payload"].to_pylist(), strict=True)
    return [int(payload.split()[0]) for name, payload in rows if name == topic]


def lose_leader(node: Broker, servers: Servers) -> None:
    servers.kill(0)
    wait_for(lambda: not metric(node, "polycast_cluster_leader_known"), "the loss of the leader", PATIENCE)


def test_a_publisher_is_slowed_and_loses_nothing(node: Broker, servers: Servers, tmp_path: Path) -> None:
    count = 20_000
    lose_leader(node, servers)
    with node.connect("simplest") as peer:
        sending = Sending(peer, to_messages("flood", count))
        sending.wait_until_held_up()
        assert not sending.done
        assert MIB < metric(node, "polycast_cluster_pending_bytes") < 2 * MIB
        assert metric(node, "polycast_publishers_paused_total") >= 1
        servers.start(0)
        sending.finish()
        wait_for(lambda: accepted(node) + refused(node) == count, "all messages", PATIENCE)
        _fence(node)
        assert refused(node) == 0
    assert numbers_of(tmp_path / "a", "flood") == list(range(count))


def test_past_the_limits_what_is_lost_is_counted(node: Broker, servers: Servers, tmp_path: Path) -> None:
    """Each new connection is read once before it is paused."""
    count = 60
    lose_leader(node, servers)
    names = [f"flood-{number}" for number in range(60)]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(node.connect("simplest")).send(to_messages(name, count))
        wait_for(lambda: refused(node), "a refusal")
        assert metric(node, "polycast_cluster_pending_bytes") >= 2 * MIB
        before = refused(node)
        assert "cluster.pending_bytes" in _refusal(node)
        assert refused(node) == before + 1
        servers.start(0)
        wait_for(lambda: accepted(node) + refused(node) == count * len(names) + 1, "all messages", PATIENCE)
        _fence(node)
        lost = refused(node) - 1
    found = {name: numbers_of(tmp_path / "a", name) for name in names}
    assert sum(map(len, found.values())) + lost == count * len(names)
    for numbers in found.values():
        assert numbers == sorted(set(numbers))


def _refusal(node: Broker) -> str:
    """What a publisher that waits for acknowledgements is told."""
    with node.connect("hermod.pub") as peer:
        peer.send(hermod.message("flood-acked", b"0"))
        return str(hermod.read_error(peer)["message"])


def _fence(node: Broker) -> None:
    """All that was sent before is applied."""
    wait_for(lambda: not metric(node, "polycast_cluster_pending_bytes"), "everything to be applied", PATIENCE)
    with node.connect("hermod.pub") as peer:
        peer.socket.settimeout(PATIENCE)
        publish(peer, [("fence", b"0")])
    wait_for(lambda: not metric(node, "polycast_log_pending_bytes"), "everything to be durable", PATIENCE)
