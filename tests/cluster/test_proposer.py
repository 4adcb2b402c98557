"""The proposer against a stream that loses, repeats, delays and reorders."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from cluster.machine_rig import STREAM, Plan
from polycast.broker import Applied, Ledger, Proposal
from polycast.cluster import messages, proposer
from polycast.cluster.machine import ApplyMachine, Verdict
from polycast.cluster.messages import Head
from polycast.cluster.proposer import Proposer
from polycast.cluster.stream import Accepted, ApiError
from polycast.log.files.format import StreamPosition

COUNT = 60


class BadStream:
    """Appends each id once. Some calls fail before, some after the append, some are slow."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.rows: list[bytes] = []
        self._ids: dict[str, int] = {}

    async def publish(self, data: bytes, message_id: str, seconds: float) -> Accepted:
        for _ in range(self._random.choice((0, 1, 1, 5))):
            await asyncio.sleep(0)
        fate = self._random.random()
        if fate < 0.05:
            raise ValueError("a response that is no JSON")
        if fate < 0.2:
            raise ApiError(503, "no leader")
        repeated = message_id in self._ids
        if not repeated:
            self.rows.append(data)
            self._ids[message_id] = len(self.rows)
        if fate > 0.8:
            raise ApiError(503, "timeout")
        return Accepted(self._ids[message_id], repeated)


class Node:
    def __init__(self, stream: BadStream) -> None:
        self._stream = stream
        self.machine = ApplyMachine(Ledger(), StreamPosition(STREAM))
        self.proposer = Proposer("a", stream.publish)
        self.applied: list[Applied] = []

    def read(self) -> None:
        while self.machine.sequence < len(self._stream.rows):
            sequence = self.machine.sequence + 1
            outcome = self.machine.apply(sequence, self._stream.rows[sequence - 1], self._find)
            outgoing = self.proposer.find(outcome.head) if outcome.head else None
            if outgoing and outcome.verdict in (Verdict.APPLIED, Verdict.PART):
                for pending, applied in zip(outgoing.pending, outcome.applied, strict=True):
                    pending.on_applied(applied)
                self.proposer.applied(outgoing)
            elif outcome.head:
                self.proposer.ignored(outcome.head, sequence)

    def _find(self, head: Head, data: bytes) -> list[Proposal] | None:
        outgoing = self.proposer.find(head)
        assert outgoing
        assert outgoing.data == data
        return [pending.proposal for pending in outgoing.pending] or None


@pytest.mark.parametrize("seed", range(8))
def test_everything_is_applied_once_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(proposer, "UNHURRIED_SECONDS", 0.0)
    monkeypatch.setattr(messages, "MESSAGE_BYTES", 200)
    monkeypatch.setattr(proposer, "GATHER_BYTES", 30)

    async def run() -> tuple[Node, BadStream]:
        stream = BadStream(seed)
        node = Node(stream)
        node.proposer.start(1)
        for number in range(COUNT):
            topics = [b"t%d" % number] * (1 + number % 17)
            node.proposer.put(Plan(topics, number, None).propose(), node.applied.append)
            await asyncio.sleep(0)
            node.read()
        while node.proposer.pending_bytes:
            await asyncio.sleep(0)
            node.read()
        await node.proposer.stop()
        return node, stream

    node, stream = asyncio.run(run())
    assert [each.proposal.bursts[0].topics[0] for each in node.applied] == [b"t%d" % each for each in range(COUNT)]
    assert [each.first for each in node.applied[1:]] == [each.next for each in node.applied[:-1]]
    fresh = ApplyMachine(Ledger(), StreamPosition(STREAM))
    for sequence, row in enumerate(stream.rows, 1):
        fresh.apply(sequence, row)
    assert fresh.position == node.machine.position
