"""Which nodes differ, and in which order a node replies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from polycast.cluster.comparison import ChainComparison
from polycast.cluster.divergence import DivergenceMark, check_divergence, mark_divergence
from polycast.cluster.peers import NodeStatus, read_statuses
from polycast.cluster.tables import STEP, DigestRequest, StepDigest, digests_of, judge
from polycast.cluster.watch import with_own
from polycast.errors import ClusterError, DivergedError
from polycast.model import Ack
from polycast.server.dispatch.applied_acks import AppliedAcks, ReplicatedAcks

UNIT = Path(__file__).parents[2] / "deploy" / "polycast.service"


def claim(node: str, sequence: int, chain: str) -> NodeStatus:
    return NodeStatus(node, "ready", 0, sequence, chain, "stream")


def test_nodes_are_compared_at_sequences_that_both_have_applied() -> None:
    comparison = ChainComparison(0, "zero")
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
    assert comparison.common() == 1


def test_a_node_that_has_just_started_knows_its_chain() -> None:
    comparison = ChainComparison(7, "seven")
    comparison.add(claim("b", 7, "other"))
    assert comparison.votes() == (set(), {"b"})
    assert comparison.at(claim("a", 9, "nine"), 8) == claim("a", 7, "seven")
    assert comparison.at(claim("a", 9, "nine"), 6) is None


def test_nodes_that_have_gone_have_no_vote() -> None:
    comparison = ChainComparison(1, "one")
    for node in ("b", "c"):
        comparison.add(claim(node, 1, "other"))
    comparison.add(claim("d", 5, "five"))
    comparison.forget_all_but({"c"})
    assert comparison.votes() == (set(), {"c"})
    comparison.note(5, "not five")
    assert comparison.votes() == (set(), {"c"})


@pytest.mark.parametrize(
    ("chains", "nodes", "outvoted"),
    [
        (["x", "x"], 3, True),
        (["x", "y"], 3, False),
        (["x"], 2, False),
        (["x", "x"], 4, False),
        (["x", "x", "one"], 4, False),
        (["x", "x", "x", "one"], 5, True),
        (["x", "x", "y", "y"], 5, False),
        (["one", "one"], 3, False),
    ],
)
def test_a_node_stops_only_if_most_nodes_have_one_other_chain(
    chains: list[str], nodes: int, outvoted: bool
) -> None:
    comparison = ChainComparison(1, "one")
    claims = [claim(str(index), 1, chain) for index, chain in enumerate(chains)]
    assert comparison.is_outvoted(claims, nodes) == outvoted


def test_claims_at_unknown_sequences_have_no_vote() -> None:
    comparison = ChainComparison(5, "five")
    assert not comparison.is_outvoted([claim("b", 4, "x"), claim("c", 4, "x")], 3)


def test_a_node_that_diverged_does_not_start_again(tmp_path: Path) -> None:
    check_divergence(tmp_path)
    error = mark_divergence(tmp_path, DivergenceMark(7, "seven", ["b", "c"]))
    assert f"RestartPreventExitStatus={error.exit_code}\n" in UNIT.read_text()
    with pytest.raises(DivergedError, match=r"differed .* at message 7 \(b, c\)"):
        check_divergence(tmp_path)
    (tmp_path / "diverged.json").write_text("?")
    with pytest.raises(DivergedError, match="cannot be read"):
        check_divergence(tmp_path)


ONE, TWO, THREE, SHORT = StepDigest(9, "1"), StepDigest(9, "2"), StepDigest(9, "3"), StepDigest(8, "1")


@pytest.mark.parametrize(
    ("digests", "nodes", "reason"),
    [
        ([ONE, TWO, ONE], ["b"], "majority"),
        ([SHORT, SHORT, ONE], ["c"], "majority"),
        ([ONE, TWO], ["a", "b"], "undecided"),
        ([TWO, ONE], ["a", "b"], "undecided"),
        ([ONE, TWO, THREE], ["a", "b", "c"], "undecided"),
        ([ONE, SHORT], ["b"], "missing"),
        ([SHORT, ONE], ["a"], "missing"),
        ([ONE, ONE, TWO, TWO], ["a", "b", "c", "d"], "undecided"),
    ],
)
def test_verify_names_a_node_only_if_the_others_prove_it_wrong(
    digests: list[StepDigest], nodes: list[str], reason: str
) -> None:
    assert judge("abcd"[: len(digests)], digests) == (nodes, reason)


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


def test_responses_that_are_no_status_are_ignored() -> None:
    nested = b"[" * 100_000
    good = msgspec.json.encode(claim("b", 5, "x"))
    assert read_statuses([b"", b"\xff", b"{}", nested, good, b"null"]) == [claim("b", 5, "x")]


@pytest.mark.parametrize("step", [0, -1, STEP + 1, 2**60])
def test_a_digest_covers_a_bounded_number_of_rows(tmp_path: Path, step: int) -> None:
    with pytest.raises(ClusterError, match="digest"):
        digests_of(tmp_path, DigestRequest(0, 10, step))
