"""Machines without NATS: what nodes send, a stream in a list, and nodes with a log that restart."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from hypothesis import strategies as st

from polycast.broker import Ledger, Proposal
from polycast.cluster.machine import ApplyMachine, StreamOutcome
from polycast.cluster.messages import Head, write_body, write_message
from polycast.log.files.format import StreamPosition
from polycast.log.log import Log
from polycast.log.settings import LogSettings
from polycast.model import BatchKey, Burst, Format
from polycast.server.core import to_ledger
from polycast.server.settings import LimitSettings, Settings

CAPACITY = 6
BATCH_IDS = 3
STREAM = "TEST then"
topics = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"])


class Plan(NamedTuple):
    """A proposal that can be made anew: numbering writes into bursts."""

    topics: list[bytes]
    seconds: int
    batch: BatchKey | None

    def propose(self) -> Proposal:
        rows = [(topic, b"%s %d" % (topic, self.seconds), Format.BYTES) for topic in self.topics]
        return Proposal([Burst.of("some", rows)], "source", self.seconds * 10**6, self.batch, len(rows))


plans = st.builds(
    Plan,
    st.lists(topics, min_size=1, max_size=5),
    st.integers(1, 300),  # in the entry of a batch, 0 stands for a time that older files do not have
    st.none() | st.builds(BatchKey, st.sampled_from(["one", "two"]), st.sampled_from(["x", "y", "z"])),
)
bodies = st.lists(plans, min_size=1, max_size=3)


@st.composite
def sent(draw: st.DrawFn, node: str) -> list[bytes]:
    """The messages of one node, in the order of their numbers; some bodies in several parts."""
    messages: list[bytes] = []
    for incarnation in range(1, draw(st.integers(1, 2)) + 1):
        number = 0
        for plan in draw(st.lists(bodies, max_size=4)):
            body = write_body([each.propose() for each in plan])
            size = draw(st.sampled_from([len(body), len(body) // 2 + 1]))
            cuts = [body[start : start + size] for start in range(0, len(body), size)]
            for part, cut in enumerate(cuts):
                number += 1
                messages.append(write_message(Head(node, incarnation, number, part, len(cuts)), cut))
    return messages


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Messages of two nodes, some repeated, some moved, and some that are none."""
    rows: list[bytes] = []
    for node in ("a", "b"):
        for message in draw(sent(node)):
            at = draw(st.integers(0, len(rows))) if draw(st.integers(0, 5)) == 0 else len(rows)
            rows.insert(at, message)
            if draw(st.integers(0, 3)) == 0:
                rows.append(message)
    order = draw(st.lists(st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    mixed = [row for _, row in sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])]
    foreign = draw(
        st.lists(st.binary(max_size=12) | st.sampled_from([row[:-1] for row in rows] or [b""]), max_size=2)
    )
    return [*(mixed if draw(st.booleans()) else rows), *foreign, *rows]


class Node:
    """A machine with a log in a folder."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.data = data
        table = LogSettings(
            data=str(data), seal=False, keep_free="0", sync="never", batch_ids=BATCH_IDS, batch_id_seconds=100.0,
            **settings,
        )  # fmt: skip
        self.log = Log.open(table, CAPACITY, exact=True, seed="00000000000000aa")
        if self.log.position is None:
            self.log.join_stream(StreamPosition(STREAM, chain="start"))
        self.ledger: Ledger = to_ledger(Settings(log=table, limits=LimitSettings(topics=CAPACITY)), self.log)
        assert self.log.position
        self.machine = ApplyMachine(self.ledger, self.log.position)
        self._posted: SimpleQueue[Any] = SimpleQueue()
        self.log.start(self._posted.put)

    def apply(self, sequence: int, data: bytes) -> StreamOutcome:
        self.log.begin_together()
        outcome = self.machine.apply(sequence, data)
        for applied in outcome.applied:
            if not applied.known:
                bursts, source, _, batch, count, _, _ = applied.proposal
                self.log.append(bursts, source, applied.micros, batch, count)
        self.log.end_together(lambda: self.machine.position)
        while self.log.durable_next < self.log.next:
            self._posted.get(timeout=30)()
        return outcome

    def feed(self, rows: list[bytes], stop: int) -> None:
        """Reads on from where this node is."""
        for sequence in range(self.machine.resume, stop + 1):
            self.apply(sequence, rows[sequence - 1])

    def state(self) -> Iterator[Any]:
        ledger, machine = self.ledger, self.machine
        yield machine.sequence, machine.chain, machine.proposers, machine.foreign
        yield ledger.next_offset, ledger.topics.floor, ledger.topics.generations
        yield {topic.name: (topic.next_sequence, topic.last_offset) for topic in ledger.topics}
        assert ledger.batches is not None
        yield [row for row in ledger.batches.rows() if row.micros + 100 * 10**6 > ledger.micros]

    def crash(self) -> Node:
        """Another node on a copy of the folder."""
        image = self.data.with_name(self.data.name + "x")
        while True:
            try:
                shutil.copytree(self.data, image)
                break
            except shutil.Error:  # a file was renamed meanwhile
                shutil.rmtree(image)
        self.close()
        return Node(image)

    def restart(self) -> Node:
        self.close()
        return Node(self.data)

    def close(self) -> None:
        table = self.ledger.topics
        self.log.close([(topic.name, topic.next_sequence, topic.last_offset) for topic in table], table.floor)
