"""A node applies its messages when the servers acknowledge them, and the stream decides the order all the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from cluster.machine_rig import STREAM, Plan
from polycast.broker import Applied, Ledger, Proposal
from polycast.cluster.machine import AHEAD_MICROS, ApplyMachine
from polycast.cluster.messages import Head, MessageKind, write_body, write_message
from polycast.cluster.reader import Delivered
from polycast.cluster.sequencer import JetStreamSequencer
from polycast.cluster.stream import Accepted, ApiError, Stream, StreamInfo
from polycast.errors import ClusterError
from polycast.log.files.format import StreamPosition
from polycast.log.log import Log
from polycast.log.times import MICROS
from polycast.log.write.bulk import STAGED_SCHEMA, to_bulk, to_columns
from polycast.model import BatchKey

STAMP = 10**15
LIMIT = 10**6


class FakeStream:
    """Rows of a stream. They are acknowledged at once, and can be read up to `readable`."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.readable = 0
        self.repeated = False

    async def publish(self, data: bytes, message_id: str, seconds: float) -> Accepted:
        self.rows.append(data)
        return Accepted(len(self.rows), self.repeated)

    async def read(self, sequence: int) -> AsyncIterator[Delivered]:
        while True:
            while sequence > self.readable:
                await asyncio.sleep(0)
            yield Delivered(sequence, self.rows[sequence - 1], STAMP)
            sequence += 1


class Node:
    def __init__(self) -> None:
        self.stream = FakeStream()
        self.applied: list[Applied] = []
        self.log = SimpleNamespace(
            position=StreamPosition(STREAM),
            on_durable=lambda listener: None,
            is_behind=lambda: False,
            begin_together=lambda: None,
            end_together=lambda position: None,
            housekeeping=SimpleNamespace(remove_before=lambda first: None),
        )
        info = cast(StreamInfo, SimpleNamespace(id=STREAM, first=1, last=0))
        self.sequencer = JetStreamSequencer("a", cast(Stream, self.stream), cast(Log, self.log), LIMIT, info)
        self.sequencer.reader = self.stream  # type: ignore[assignment]
        self.ledger = Ledger()
        self.sequencer.attach(self.ledger, self.applied.append, lambda run: run(), lambda: None)

    def propose(self, topic: bytes, seconds: int = 1) -> None:
        self.sequencer.propose(Plan([topic], seconds, None).propose(), self.applied.append)

    def add_foreign(self, number: int, topic: bytes) -> None:
        """A message of another node."""
        self.stream.rows.append(
            write_message(Head("b", 1, number), write_body([Plan([topic], 1, None).propose()]))
        )

    def topics(self) -> list[bytes]:
        return [applied.proposal.bursts[0].topics[0] for applied in self.applied]

    async def settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    def check_chain(self) -> None:
        """A node that only reads has the same state."""
        fresh = ApplyMachine(Ledger(), StreamPosition(STREAM))
        for sequence, row in enumerate(self.stream.rows, 1):
            fresh.apply(sequence, row, stamp=STAMP)
        assert fresh.position == self.sequencer.machine.position


def with_node(test: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        node = Node()
        await node.sequencer.catch_up()
        try:
            await test(node)
        finally:
            await node.sequencer.drain(0)

    asyncio.run(run())


async def check_waits(node: Node, seconds: int = 1) -> None:
    """The message is applied when it is read, not when it is acknowledged."""
    node.propose(b"x", seconds)
    await node.settle()
    assert node.topics() == []
    node.stream.readable = 1
    await node.settle()
    assert node.topics() == [b"x"]
    node.check_chain()


def test_an_acknowledged_message_is_applied_before_it_is_read() -> None:
    async def test(node: Node) -> None:
        node.propose(b"x")
        await node.settle()
        assert node.topics() == [b"x"]
        node.stream.readable = 1
        await node.settle()
        assert node.topics() == [b"x"]
        node.add_foreign(1, b"y")
        node.stream.readable = 2
        await node.settle()
        assert node.topics() == [b"x", b"y"]
        node.check_chain()

    with_node(test)


def test_a_message_after_one_of_another_node_waits_until_that_is_read() -> None:
    async def test(node: Node) -> None:
        node.add_foreign(1, b"y")
        node.propose(b"x")
        await node.settle()
        assert node.topics() == []
        node.stream.readable = 2
        await node.settle()
        assert node.topics() == [b"y", b"x"]
        node.check_chain()

    with_node(test)


def test_a_time_that_depends_on_the_stream_message_waits_until_that_is_read() -> None:
    async def test(node: Node) -> None:
        await check_waits(node, seconds=AHEAD_MICROS // MICROS + 1)

    with_node(test)


def test_a_message_with_a_known_id_waits_until_it_is_read() -> None:
    """The servers acknowledge the message that had this id before, whatever its bytes are."""

    async def test(node: Node) -> None:
        node.stream.repeated = True
        await check_waits(node)

    with_node(test)


def test_messages_that_are_not_read_yet_are_bounded() -> None:
    async def test(node: Node) -> None:
        for number in range(20):
            node.propose(Random(number).randbytes(LIMIT // 32).hex().encode())  # does not pack
            await node.settle()
        assert 4 <= len(node.applied) < 20
        node.stream.readable = len(node.stream.rows)
        await node.settle()
        assert len(node.applied) == 20
        node.check_chain()
        node.propose(b"again")
        await node.settle()
        assert node.topics()[-1] == b"again"

    with_node(test)


def test_nothing_is_applied_while_the_log_is_behind() -> None:
    async def test(node: Node) -> None:
        node.log.is_behind = lambda: True
        node.propose(b"x")
        await node.settle()
        assert node.topics() == []

    with_node(test)


def test_servers_that_have_another_message_than_they_acknowledged_stop_the_node() -> None:
    async def test(node: Node) -> None:
        node.propose(b"x")
        await node.settle()
        node.stream.rows[0] = node.stream.rows[0].replace(b"x 1", b"z 1")
        node.stream.readable = 1
        await node.settle()
        with pytest.raises(ClusterError, match="message 1 is not the one that the servers acknowledged"):
            node.sequencer.failed.result()

    with_node(test)


def test_the_end_of_the_stream_is_what_a_leader_with_a_majority_says() -> None:
    async def test(node: Node) -> None:
        async def info() -> SimpleNamespace:
            return SimpleNamespace(last=0, confirmed=confirmed)

        node.stream.info = info  # type: ignore[attr-defined]
        for confirmed in (False, True):
            with contextlib.nullcontext() if confirmed else pytest.raises(ApiError, match="majority"):
                await node.sequencer.reach_end()

    with_node(test)


def test_the_rows_of_a_commit_that_is_ignored_are_not_fetched() -> None:
    """A node account could make all nodes fetch them again and again."""
    batch = BatchKey("me", "id")
    row = pa.RecordBatch.from_pydict({"topic": ["t"], "payload": [b"1"], "format": ["text"]}, STAGED_SCHEMA)
    body = write_body([Proposal((), "source", 5, batch, 1, to_bulk("hermod", to_columns([row]), [[1]]))])

    async def test(node: Node) -> None:
        fetched: list[int] = []

        async def get(sequence: int) -> bytes:
            fetched.append(sequence)
            return node.stream.rows[sequence - 1]

        node.stream.get = get  # type: ignore[attr-defined]
        node.add_foreign(1, b"y")
        for number in (9, 1, 2):
            node.stream.rows.append(write_message(Head("b", 1, number, kind=MessageKind.COMMIT), body))
        node.stream.readable = 3
        await node.settle()
        assert node.sequencer.machine.sequence == 3
        assert fetched == []
        node.stream.readable = 4
        await node.settle()
        assert fetched == [1]

    with_node(test)


def test_an_error_while_applying_stops_the_node() -> None:
    async def test(node: Node) -> None:
        node.sequencer._on_turn = lambda: (1 // 0, None)[1]
        node.propose(b"x")
        await node.settle()
        with pytest.raises(ClusterError, match="the stream cannot be applied: ZeroDivisionError"):
            node.sequencer.failed.result()

    with_node(test)


@pytest.mark.parametrize("seed", range(10))
def test_any_mix_of_messages_is_applied_once_in_the_order_of_the_stream(seed: int) -> None:
    async def test(node: Node) -> None:
        chance = Random(seed)
        foreign = 0
        for number in range(200):
            if chance.random() < 0.3:
                foreign += 1
                node.add_foreign(foreign, b"f%d" % number)
            else:
                node.propose(b"t%d" % number, seconds=number)
            node.stream.readable = chance.randint(node.stream.readable, len(node.stream.rows))
            for _ in range(chance.randint(0, 4)):
                await asyncio.sleep(0)
        await node.settle()
        while node.stream.readable < len(node.stream.rows) or node.sequencer.proposer.pending_bytes:
            node.stream.readable = len(node.stream.rows)
            await node.settle()
        topics = node.topics()
        assert [topic for topic in topics if topic[:1] == b"t"] == sorted(
            (topic for topic in topics if topic[:1] == b"t"), key=lambda topic: int(topic[1:])
        )
        assert len(topics) == len(set(topics)) == 200
        node.check_chain()

    with_node(test)
