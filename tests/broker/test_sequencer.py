"""The ledger: apply depends on the proposals alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from polycast.broker import Applied, Hub, Ledger, LocalSequencer, Proposal
from polycast.log.batch_ids import BatchIds
from polycast.model import BatchKey, Burst, Encoder, Everything, Exact, Format, Pattern, Prefix
from polycast.routing import Topics

CAPACITY = 6
BATCH_IDS = 4
BATCH_SECONDS = 10.0
MICROS = 1_000_000

names = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g"])
keys = st.none() | st.builds(BatchKey, st.sampled_from(["one", "two"]), st.sampled_from(["x", "y", "z"]))
patterns: st.SearchStrategy[Pattern] = st.sampled_from([Exact("a"), Exact("zz"), Prefix("b"), Everything()])


class Rows(NamedTuple):
    names: list[bytes]
    counts: list[int]
    lasts: list[int]


@st.composite
def bulks(draw: st.DrawFn) -> Rows:
    topics = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    counts = [draw(st.integers(1, 5)) for _ in topics]
    return Rows(topics, counts, [sum(counts) - 1] * len(topics))


@dataclass
class Plan:
    """A proposal that can be made anew for each ledger: numbering writes into bursts."""

    bursts: list[list[bytes]]
    seconds: int
    batch: BatchKey | None
    bulk: Rows | None

    def propose(self) -> Proposal:
        bursts = [Burst.of("some", [(topic, b"x", Format.BYTES) for topic in topics]) for topics in self.bursts]
        count = sum(self.bulk.counts) if self.bulk else sum(map(len, self.bursts))
        used = () if self.bulk else bursts
        return Proposal(used, "source", self.seconds * MICROS, self.batch, count, self.bulk)


plans = st.builds(
    Plan,
    st.lists(st.lists(names, min_size=1, max_size=5), min_size=1, max_size=2),
    st.integers(0, 60),
    keys,
    st.none() | bulks(),
)


@dataclass
class Node:
    """A broker's state; its subscribers and lookups are its own."""

    ledger: Ledger = field(default_factory=lambda: Ledger(Topics(CAPACITY), BatchIds(BATCH_IDS, BATCH_SECONDS)))
    applied: list[Applied] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hub = Hub(self.ledger.topics)
        self.sequencer = LocalSequencer(self.ledger)

    def apply(self, plan: Plan) -> None:
        self.sequencer.propose(plan.propose(), self._deliver)

    def _deliver(self, applied: Applied) -> None:
        self.applied.append(applied)
        for burst, topics in zip(applied.proposal.bursts, applied.topics, strict=False):
            self.hub.deliveries(burst, topics, self.hub.join("publisher"))

    def state(self) -> object:
        topics = {topic.name: (topic.next_sequence, topic.last_offset) for topic in self.ledger.topics}
        batches = self.ledger.batches
        assert isinstance(batches, BatchIds)
        ids = list(batches.rows())
        positions = [
            (each.first, each.next, each.micros, each.sequences, each.known and each.known.first)
            for each in self.applied
        ]
        numbered = [(burst.offset, burst.sequences) for each in self.applied for burst in each.proposal.bursts]
        return (
            topics,
            self.ledger.topics.floor,
            self.ledger.next_offset,
            self.ledger.micros,
            ids,
            positions,
            numbered,
        )


@given(st.lists(plans, max_size=30), st.data())
def test_nodes_that_apply_the_same_proposals_are_equal(proposals: list[Plan], data: st.DataObject) -> None:
    quiet, busy = Node(), Node()
    encoder = Encoder()
    for plan in proposals:
        quiet.apply(plan)
        for pattern in data.draw(st.lists(patterns, max_size=2)):
            busy.hub.subscribe(busy.hub.join("subscriber"), pattern, encoder)
        for name in data.draw(st.lists(names, max_size=3)):
            busy.hub.router.audience(name)
            busy.ledger.topics.get(name)
        busy.apply(plan)
    assert quiet.state() == busy.state()


@given(st.lists(plans, max_size=30))
def test_offsets_follow_without_a_gap_and_sequences_never_repeat(proposals: list[Plan]) -> None:
    node = Node()
    used: set[tuple[bytes, int]] = set()
    reached = 0
    for plan in proposals:
        node.apply(plan)
        applied = node.applied[-1]
        assert applied.first == reached
        reached = applied.next
        for burst in applied.proposal.bursts if not applied.known else ():
            for run, start, stop in burst.runs():
                numbers = range(burst.sequences[run], burst.sequences[run] + stop - start)
                fresh = {(burst.topics[run], number) for number in numbers}
                assert not fresh & used
                used |= fresh
    assert node.ledger.next_offset == reached


def test_time_never_goes_back() -> None:
    node = Node()
    for seconds in (5, 3, 9):
        node.apply(Plan([[b"a"]], seconds, None, None))
    assert [applied.micros for applied in node.applied] == [5 * MICROS, 5 * MICROS, 9 * MICROS]


def test_a_known_batch_is_numbered_once() -> None:
    node, key = Node(), BatchKey("one", "x")
    for seconds in (1, 2):
        node.apply(Plan([[b"a", b"b"]], seconds, key, None))
    first, again = node.applied
    assert first.known is None
    assert again.known is not None and (again.known.first, again.known.count) == (0, 2)
    assert node.ledger.next_offset == 2


def test_batch_ids_expire_by_the_time_of_proposals() -> None:
    node, key = Node(), BatchKey("one", "x")
    node.apply(Plan([[b"a"]], 1, key, None))
    node.apply(Plan([[b"a"]], 1 + int(BATCH_SECONDS), key, None))
    assert [applied.known for applied in node.applied] == [None, None]
    assert node.ledger.next_offset == 2
