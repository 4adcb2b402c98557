"""Three nodes on three servers: one order, one table, nothing acknowledged is lost."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from cluster.trio import PATIENCE, Trio, read_table
from kit import hermod
from kit.broker import Broker
from kit.replay import handshake, publish, read_messages
from kit.subscribers import open_simplest, send_request
from kit.ubre import UbrePeer
from kit.wire import wait_for
from polycast.client import connect
from polycast.errors import ReplyTimeoutError
from polycast.model import Exact, Message, StartPosition

DIALECTS = ("simplest", "hermod", "fanout", "nanomsg", "ubre")


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with Trio(tmp_path_factory.mktemp("trio")) as running:
        yield running


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


class Publisher(threading.Thread):
    """Publishes numbers, each acknowledged before the next. After a failure it goes on at another node."""

    def __init__(self, trio: Trio, name: str, order: str) -> None:
        super().__init__(daemon=True)
        self._trio = trio
        self._order = order
        self.topic = f"numbers.{name}"
        self.acked: list[int] = []
        self.unsure: set[int] = set()
        self.ending = threading.Event()

    def run(self) -> None:
        number = 0
        turn = 0
        while not self.ending.is_set():
            node = self._trio.nodes.get(self._order[turn % len(self._order)])
            turn += 1
            try:
                assert node
                with node.connect("hermod.pub") as peer:
                    peer.socket.settimeout(PATIENCE)
                    while not self.ending.is_set():
                        number += 1
                        self.unsure.add(number)
                        peer.send(hermod.message(self.topic, b"%d" % number))
                        peer.expect(hermod.OK)
                        self.unsure.discard(number)
                        self.acked.append(number)
            except (OSError, AssertionError):
                continue


def check(trio: Trio, *publishers: Publisher) -> None:
    trio.catch_up()
    tables = trio.tables()
    first, *others = tables.values()
    for other in others:
        assert other.equals(first)
    assert first["offset"].to_pylist() == list(range(first.num_rows))
    for publisher in publishers:
        rows = [int(p) for t, p in zip(first["topic"].to_pylist(), first["payload"].to_pylist(), strict=True)
                if t == publisher.topic]  # fmt: skip
        assert rows == sorted(set(rows))
        assert set(publisher.acked) <= set(rows) <= set(publisher.acked) | publisher.unsure
        sequences = [s for t, s in zip(first["topic"].to_pylist(), first["sequence"].to_pylist(), strict=True)
                     if t == publisher.topic]  # fmt: skip
        assert sequences == list(range(len(rows)))


def test_every_dialect_publishes_at_one_node_and_subscribes_at_another(trio: Trio, peers: ExitStack) -> None:
    subscribers = {}
    for dialect in DIALECTS:
        subscribers[dialect] = peers.enter_context(connect(dialect, _http(trio.nodes["c"])))
        subscribers[dialect].subscribe([Exact("all.dialects")])
    publishers = [peers.enter_context(connect(dialect, _http(trio.nodes["a"]), True)) for dialect in DIALECTS]
    received: dict[str, set[str]] = {dialect: set() for dialect in DIALECTS}

    def each_received_all() -> bool:
        """Some dialects do not acknowledge a subscription: published again until it is there."""
        for publisher, dialect in zip(publishers, DIALECTS, strict=True):
            publisher.publish([Message("all.dialects", f'"{dialect}"')])
        for dialect, subscriber in subscribers.items():
            with suppress(ReplyTimeoutError):
                received[dialect] |= {message.payload.decode() for message in subscriber.receive(timeout=0.2)}
        return all(found >= {f'"{dialect}"' for dialect in DIALECTS} for found in received.values())

    wait_for(each_received_all, "the messages of all dialects in all dialects")
    check(trio)


def _http(node: Broker) -> str:
    return f"http://127.0.0.1:{node.ports['http']}"


def test_replay_and_history_at_nodes_that_did_not_read_the_message(trio: Trio, peers: ExitStack) -> None:
    publish(peers.enter_context(trio.nodes["a"].connect("hermod.pub")), [("past", b"1"), ("past", b"2")])
    trio.catch_up()

    def history() -> list[int]:
        return [row["sequence"] for row in send_request(trio.nodes["b"], "polycast/history", {"pattern": "past"})]

    wait_for(lambda: history() == [0, 1], "the messages in the log of another node")
    peer = peers.enter_context(trio.nodes["c"].connect("hermod.sub"))
    peer.send(handshake("past", since="earliest"))
    peer.expect(hermod.OK)
    assert [message.payload for message in read_messages(peer, 2)] == [b"1", b"2"]


def test_a_message_reaches_subscribers_of_all_nodes(trio: Trio, peers: ExitStack) -> None:
    subscribers = []
    for node in trio.nodes.values():
        peer = peers.enter_context(node.connect("hermod.sub"))
        peer.send(hermod.topics("news"))
        peer.expect(hermod.OK)
        subscribers.append(peer)
    line = peers.enter_context(open_simplest(trio.nodes["c"], "news", 0))
    publish(peers.enter_context(trio.nodes["a"].connect("hermod.pub")), [("news", b"one"), ("news", b"two")])
    publish(peers.enter_context(trio.nodes["b"].connect("hermod.pub")), [("news", b"three")])
    found = [read_messages(peer, 3) for peer in subscribers]
    assert found[0] == found[1] == found[2]
    assert [message.payload for message in found[0]] == [b"one", b"two", b"three"]
    assert [message.sequence for message in found[0]] == [0, 1, 2]
    assert line.read_until(b"three").count(b"news") == 3
    check(trio)
    for node in trio.nodes.values():
        wait_for(lambda node=node: _subscribers(node, "news") == 4, "subscribers of all nodes")  # type: ignore[misc]


def _subscribers(node: Broker, topic: str) -> int:
    """The status of all nodes that this one knows."""
    [row] = send_request(node, "polycast/topics", {"topic": topic})["topics"]
    return int(row["subscribers"])


def test_a_burst_larger_than_one_message_of_the_stream_is_delivered_whole(trio: Trio, peers: ExitStack) -> None:
    payload = bytes(range(256)) * 10_000
    peer = peers.enter_context(trio.nodes["b"].connect("hermod.sub"))
    peer.send(hermod.topics("large"))
    peer.expect(hermod.OK)
    publish(peers.enter_context(trio.nodes["a"].connect("hermod.pub")), [("large", payload), ("large", b"small")])
    assert [message.payload for message in read_messages(peer, 2)] == [payload, b"small"]
    check(trio)


def test_a_batch_id_is_known_at_every_node(trio: Trio) -> None:
    batch = hermod.count(2, batch_id="once") + hermod.message("batch", b"1") + hermod.message("batch", b"2")
    for name in ("a", "b", "c"):
        with trio.nodes[name].connect("hermod.pub") as peer:
            peer.send(batch)
            peer.expect(hermod.ok(2))
    trio.catch_up()
    assert trio.tables()["a"]["topic"].to_pylist().count("batch") == 2


def test_nodes_die_and_come_back(trio: Trio) -> None:
    publishers = [Publisher(trio, "ab", "ab"), Publisher(trio, "bc", "bc"), Publisher(trio, "c", "c")]
    for publisher in publishers:
        publisher.start()
    for name in ("b", "c", "b"):
        _wait_for_acks(publishers[0], 20)
        trio.kill(name)
        _wait_for_acks(publishers[0], 20)
        trio.start(name)
    _end(publishers)
    check(trio, *publishers)


def test_a_subscriber_goes_on_at_another_node_with_its_sequence(trio: Trio) -> None:
    with trio.nodes["a"].connect("hermod.pub") as peer:
        publish(peer, [("moving", b"%d" % number) for number in range(10)])
    trio.catch_up()
    with trio.nodes["a"].connect("hermod.sub") as peer:
        peer.send(handshake("moving", since={"topics": {"moving": 0}}))
        peer.expect(hermod.OK)
        found = read_messages(peer, 4)
    with trio.nodes["c"].connect("hermod.sub") as peer:
        peer.send(handshake("moving", since={"topics": {"moving": found[-1].sequence + 1}}))
        peer.expect(hermod.OK)
        found += read_messages(peer, 6)
    assert [message.payload for message in found] == [b"%d" % number for number in range(10)]


def test_a_position_that_this_node_has_not_reached_is_a_reason_to_connect_again(trio: Trio) -> None:
    for since in ("@1000000", {"topics": {"moving": 1_000_000}}):
        with trio.nodes["b"].connect("hermod.sub") as peer:
            peer.send(handshake("moving", since=since))
            refused = hermod.read_error(peer)
            assert refused["code"] == 503
            assert "this node may be behind" in str(refused["message"])
            peer.expect_closed()


def test_the_leader_of_the_stream_dies(trio: Trio) -> None:
    publishers = [Publisher(trio, "left", "a"), Publisher(trio, "right", "c")]
    for publisher in publishers:
        publisher.start()
    _wait_for_acks(publishers[0], 20)
    leader = int(trio.status()["stream"]["leader"].removeprefix("s"))
    trio.servers.kill(leader)
    _wait_for_acks(publishers[0], 20)
    trio.servers.start(leader)
    trio.servers.wait()
    _wait_for_acks(publishers[1], 20)
    _end(publishers)
    check(trio, *publishers)


def test_without_a_majority_publishers_wait_and_subscribers_go_on(trio: Trio, peers: ExitStack) -> None:
    publish(peers.enter_context(trio.nodes["a"].connect("hermod.pub")), [("quiet", b"before")])
    trio.catch_up()
    for index in (0, 1):
        trio.servers.kill(index)
    publisher = peers.enter_context(trio.nodes["a"].connect("hermod.pub"))
    publisher.socket.settimeout(PATIENCE)
    publisher.send(hermod.message("quiet", b"during"))
    subscriber = peers.enter_context(trio.nodes["b"].connect("hermod.sub"))
    subscriber.send(handshake("quiet", since={"topics": {"quiet": 0}}))
    subscriber.expect(hermod.OK)
    assert [message.payload for message in read_messages(subscriber, 1)] == [b"before"]
    assert not select.select([publisher.socket], [], [], 0)[0]
    for index in (0, 1):
        trio.servers.start(index)
    trio.servers.wait()
    publisher.expect(hermod.OK)
    assert [message.payload for message in read_messages(subscriber, 1)] == [b"during"]
    check(trio)


def test_an_acknowledgement_after_fsync(trio: Trio) -> None:
    trio.stop("c")
    node = trio.start("c", "--set=cluster.ack=fsync")
    for number in range(5):
        with node.connect("hermod.pub") as peer:
            publish(peer, [("synced", b"%d" % number)])
        assert b"%d" % number in read_table(trio.folder / "c" / "log")["payload"].to_pylist()
    wait_for(lambda: len(trio.status("c")["nodes"]) == 3, "the other nodes, known by the new one")


def _wait_for_acks(publisher: Publisher, more: int) -> None:
    wanted = len(publisher.acked) + more
    wait_for(lambda: len(publisher.acked) >= wanted, f"{wanted} acknowledgements", PATIENCE)


def _end(publishers: list[Publisher]) -> None:
    for publisher in publishers:
        publisher.ending.set()
    for publisher in publishers:
        publisher.join(PATIENCE)


def test_a_request_reaches_a_route_of_another_node(trio: Trio, peers: ExitStack) -> None:
    trio.catch_up()  # the others do not know a node that has just started
    responder = peers.enter_context(UbrePeer(trio.nodes["b"].ports["ubre"]))
    responder.send_message(subscribe="shared", body={"serve": True})
    responder.flush()
    requester = peers.enter_context(UbrePeer(trio.nodes["c"].ports["ubre"]))
    requester.send_message(request="shared", id=1, body={"question": 1})
    requested = json.loads(responder.read_until(b"\n"))
    assert requested["body"] == {"question": 1}
    responder.send_message(success=requested["id"], body={"sum": 2})
    requester.expect_message(success=1, body={"sum": 2})
    assert requester.refusal("nowhere", 1) == "NotFound"
    requester.send_message(request="shared", id=3, body="last")
    responder.read_until(b"\n")
    responder.close()
    requester.expect_message(fail=3, body="Gone")


def test_listings_name_the_node_and_close_works_from_everywhere(trio: Trio, peers: ExitStack) -> None:
    victim = peers.enter_context(UbrePeer(trio.nodes["b"].ports["ubre"]))
    victim.flush()

    def listed() -> list[str]:
        rows = send_request(trio.nodes["a"], "polycast/connections")["connections"]
        return [
            row["name"]
            for row in rows
            if row["node"] == "b" and str(victim.socket.getsockname()[1]) in row["address"]
        ]

    [name] = wait_for(listed, "the connection in the listing of another node")
    assert name.startswith("b#")
    assert send_request(trio.nodes["a"], "polycast/close", {"name": name}) == {"name": name}
    victim.expect_closed()
    stats = send_request(trio.nodes["c"], "polycast/stats")
    assert stats["node"] == "c"
    assert {row["node"] for row in stats["nodes"]} == {"a", "b", "c"}


def test_clients_go_on_at_another_node(trio: Trio) -> None:
    """The node of a publisher and a subscriber is killed while both are busy: nothing is lost or repeated."""
    victim = next(iter(trio.nodes))
    pub, sub = (
        [f"tcp://127.0.0.1:{node.ports[listener]}" for node in trio.nodes.values()]
        for listener in ("hermod.pub", "hermod.sub")
    )
    with connect("hermod", pub, publishing=True) as publisher, connect("hermod", sub) as subscriber:
        subscriber.subscribe([Exact("failover")], start=StartPosition())
        killing = threading.Thread(target=trio.kill, args=[victim])
        for number in range(0, 1000, 20):
            if number == 400:
                killing.start()
            if number == 600:
                killing.join()  # what follows can only reach another node
            publisher.publish([Message("failover", b"%d" % each) for each in range(number, number + 20)], PATIENCE)
        found: list[Message] = []
        while len(found) < 1000:
            found += subscriber.receive(PATIENCE)
        assert publisher.reconnects and subscriber.reconnects
    assert [message.payload for message in found] == [b"%d" % number for number in range(1000)]
    trio.start(victim)
    check(trio)
    assert trio.tables()[victim]["topic"].to_pylist().count("failover") == 1000
