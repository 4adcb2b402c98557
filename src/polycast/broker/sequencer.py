"""The sequencer: gives every accepted message its offset and its sequence.

    propose   rights, limits and topics are checked; a proposal carries everything that apply needs
    apply     time, batch id, offsets and sequences, in the order of the log

`Ledger.apply` depends on the ledger and the proposal alone: no clock, no connection, no subscriber. Two ledgers
that apply the same proposals in the same order are equal. `LocalSequencer` applies a proposal at once; a sequencer
on a replicated log applies it when the log delivers it, on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from polycast.log.batch_ids import BatchIds, KnownBatch
from polycast.model import BatchKey, Burst
from polycast.routing import Topic, Topics


class BulkRows(Protocol):
    """Rows in columns, counted by topic."""

    @property
    def names(self) -> list[bytes]: ...
    @property
    def counts(self) -> list[int]: ...
    @property
    def lasts(self) -> list[int]:
        """The index of each topic's last row."""
        ...


class Proposal(NamedTuple):
    """Messages without a position. Every topic is UTF-8."""

    bursts: Sequence[Burst]
    """Numbered in this order."""
    source: str
    micros: int
    """When the broker read the messages, in microseconds since the epoch."""
    batch: BatchKey | None = None
    messages: int = 0
    """The messages of the batch; copies under other names do not count."""
    bulk: BulkRows | None = None
    """Instead of bursts."""
    link: bool = False
    """Whether the messages came from another broker of a mesh."""


class StagedFrame(NamedTuple):
    """Rows of a stage, which a later proposal publishes."""

    batch: BatchKey
    name: str | None
    """None: all stages of the batch, to be dropped."""
    before: int
    """The rows before these. 0: the stage begins anew."""
    rows: int
    data: bytes
    """An Arrow IPC stream."""
    dropped: bool = False
    """The stage is dropped."""
    sequences: Sequence[int] = ()
    """Where the replicated log has it."""


class Applied(NamedTuple):
    proposal: Proposal
    first: int
    next: int
    micros: int
    """The time of the messages. It never goes back."""
    topics: list[list[Topic]]
    """The topic of each run, for each burst."""
    sequences: list[int]
    """The first sequence of each topic of bulk rows."""
    known: KnownBatch | None = None
    """The earlier batch with the same id; then nothing was numbered."""


@dataclass(slots=True)
class Ledger:
    """State of apply: the next offset, the sequence of every topic, the time, the known batch ids."""

    topics: Topics = field(default_factory=lambda: Topics(1_000_000))
    batches: BatchIds | None = None
    next_offset: int = 0
    micros: int = 0

    def apply(self, proposal: Proposal) -> Applied:
        self.micros = micros = max(self.micros, proposal.micros)
        first = self.next_offset
        if known := self._known(proposal.batch):
            return Applied(proposal, first, first, micros, [], [], known)
        topics = [self._number(burst, micros) for burst in proposal.bursts]
        sequences = self._number_bulk(proposal.bulk) if proposal.bulk else []
        if proposal.batch and self.batches is not None:
            self.batches.add(proposal.batch, first, proposal.messages, micros)
        return Applied(proposal, first, self.next_offset, micros, topics, sequences)

    def _known(self, batch: BatchKey | None) -> KnownBatch | None:
        if batch is None or self.batches is None:
            return None
        return self.batches.find(batch, self.micros)

    def _number(self, burst: Burst, micros: int) -> list[Topic]:
        """Positions for every message, whether or not it has subscribers."""
        topics, burst.sequences = self.topics.number(burst.topics, burst.run_ends, self.next_offset)
        burst.offset = self.next_offset
        burst.micros = micros
        self.next_offset += len(burst)
        self.topics.trim(self.next_offset)
        return topics

    def _number_bulk(self, bulk: BulkRows) -> list[int]:
        first, sequences = self.next_offset, []
        for name, count, last in zip(bulk.names, bulk.counts, bulk.lasts, strict=True):
            topic = self.topics.use(name)
            sequences.append(topic.next_sequence)
            topic.next_sequence += count
            topic.last_offset = first + last
        self.next_offset += sum(bulk.counts)
        self.topics.trim(self.next_offset)
        return sequences


class Sequencer(Protocol):
    """Puts proposals in order. Proposals of one broker are applied in the order in which it proposed them."""

    def propose(self, proposal: Proposal, on_applied: Callable[[Applied], None]) -> None: ...


OnRemote = Callable[[Applied], None]
OnOwn = Callable[[Callable[[], None]], None]


class ClusterSequencer(Sequencer, Protocol):
    """Proposals of all nodes, in the order of a replicated log."""

    node: str
    proposed: int
    """The number of proposals of this node."""
    commit_messages: int
    """How many messages of the replicated log, with staged frames, a commit can name."""

    def attach(self, ledger: Ledger, on_remote: OnRemote, on_own: OnOwn, on_turn: Callable[[], None]) -> None:
        """`on_remote` gets what other nodes proposed; `on_own` applies one proposal of this node; `on_turn` is
        called after some were applied."""
        ...

    def has_room(self) -> bool: ...

    def is_behind(self, share: float) -> bool:
        """Whether the proposals that wait exceed this share of their limit."""
        ...

    async def catch_up(self) -> None:
        """Applies what the replicated log has already."""
        ...

    def attach_stages(
        self,
        on_frame: Callable[[StagedFrame], None],
        on_batch: Callable[[BatchKey], None],
        first: Callable[[], int],
    ) -> None:
        """`on_frame` gets every frame that was staged at any node, `on_batch` every batch that was applied;
        `first` returns the stream sequence of the oldest needed frame; 0: none."""
        ...

    def stage(self, frame: StagedFrame, on_applied: Callable[[], None]) -> None: ...

    async def read_frame(self, sequences: Sequence[int]) -> StagedFrame:
        """A frame from the replicated log."""
        ...

    async def reach_end(self) -> None:
        """Returns when this node has applied what the replicated log has now."""
        ...

    async def drain(self, seconds: float) -> None:
        """Waits until all proposals of this node are applied, and then applies nothing more."""
        ...


class LocalSequencer:
    """One broker: apply follows propose at once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def propose(self, proposal: Proposal, on_applied: Callable[[Applied], None]) -> None:
        on_applied(self._ledger.apply(proposal))
