"""Which nodes differ, and in which order a node replies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polycast.cluster.peers import NodeStatus
from polycast.cluster.watch import ChainComparison, with_own
from polycast.model import Ack
from polycast.server.dispatch.applied_acks import AppliedAcks, ReplicatedAcks


def claim(node: str, sequence: int, chain: str) -> NodeStatus:
    return NodeStatus(node, "ready", 0, sequence, chain, "stream")


def test_nodes_are_compared_at_sequences_that_both_have_applied() -> None:
    comparison = ChainComparison("a")
    comparison.add(claim("ahead", 3, "three"))
    comparison.note(1, "one")
    comparison.add(claim("behind", 1, "one"))
    comparison.add(claim("odd", 1, "other"))
    assert comparison.votes() == ({"behind"}, {"odd"})
    comparison.note(2, "two")
    comparison.note(3, "not three")
    assert comparison.votes() == ({"behind"}, {"ahead", "odd"})
    comparison.add(claim("ahead", 3, "not three"))
    assert comparison.votes() == ({"ahead", "behind"}, {"odd"})


class Rig:
    def __init__(self) -> None:
        self.proposed = 0
        self.sent: list[tuple[Any, bytes]] = []
        log: Any = SimpleNamespace(next=0, durable_next=0)
        after = ReplicatedAcks(log, lambda connection, data: self.sent.append((connection.name, data)))
        self.acks = AppliedAcks(after, lambda: self.proposed)

    def connection(self, name: str) -> Any:
        return _Connection(name)

    def propose(self, connection: Any) -> None:
        self.proposed += 1
        self.acks.note_proposed(connection)


class _Connection:
    def __init__(self, name: str) -> None:
        self.name = name
        self.subscriber = SimpleNamespace(owner=self)


def ack(data: bytes) -> Ack:
    return Ack(data, lambda reason, durable: b"%d durable" % durable)


def test_replies_wait_for_the_last_proposal_of_their_connection() -> None:
    rig = Rig()
    one, two, three = (rig.connection(name) for name in "123")
    rig.propose(one)
    rig.acks.acknowledge(one, ack(b"one"))
    rig.acks.reply(one, b"after one")
    rig.propose(two)
    rig.acks.acknowledge(two, ack(b"two"))
    rig.acks.reply(three, b"at once")
    assert rig.sent == [("3", b"at once")]
    rig.acks.apply(lambda: rig.acks.note(one, 0, 1))
    assert rig.sent[1:] == [("1", b"one"), ("1", b"after one")]
    rig.acks.forget(two)
    rig.acks.apply(lambda: rig.acks.note(two, 1, 1))
    assert len(rig.sent) == 3


def test_a_refusal_is_sent_at_once_unless_the_connection_waits() -> None:
    rig = Rig()
    waiting, fresh = rig.connection("w"), rig.connection("f")
    rig.propose(waiting)
    for connection in (waiting, fresh):
        rig.acks.note_refused(connection, 1)
        rig.acks.acknowledge(connection, ack(b"ok"))
    assert rig.sent == [("f", b"0 durable")]
    rig.acks.apply(lambda: rig.acks.note(waiting, 0, 1))
    assert rig.sent[1:] == [("w", b"1 durable")]


def test_the_reply_to_a_batch_comes_before_what_was_proposed_later() -> None:
    rig = Rig()
    one = rig.connection("1")
    rig.propose(one)
    rig.propose(one)
    rig.acks.acknowledge(one, ack(b"later"))
    rig.acks.apply(lambda: rig.acks.acknowledge(one, ack(b"batch")))
    assert rig.sent == [("1", b"batch")]
    rig.acks.apply(lambda: None)
    assert rig.sent[1:] == [("1", b"later")]


def test_a_node_without_servers_knows_itself() -> None:
    own, other = claim("b", 2, "two"), claim("a", 2, "two")
    assert with_own(own, []) == [own]
    assert with_own(own, [claim("b", 1, "one"), other]) == [other, own]
