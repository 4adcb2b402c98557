"""The machine: applies the messages of the stream to a ledger, in their order.

Everything that a node knows after a message depends on the messages up to it and on nothing else. From one
incarnation of a node, message n is applied only after n - 1; any other is ignored, so a proposer may send a
message again as often as it likes. A later incarnation ends the earlier one, and drops its unfinished parts. So
does the stream when it is PARTS_REACH messages further.

Staged rows change nothing. What became of them depends on the stream alone: a commit names its frames by their
stream sequences. After a restart, frames that wait for their commit are read again.

Time comes from the proposals, and never goes back. A node with a clock far ahead would move the time of all nodes
for good. So a time of more than AHEAD_MICROS after the last one, and after the time of the stream message, is
replaced by that of the stream message, which is the same for all nodes.

The chain is a hash over all messages and what became of them: two nodes with equal chains have equal tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import xxhash

from polycast.broker import Applied, Ledger, Proposal, StagedFrame
from polycast.cluster.messages import (
    PARTS_AT_MOST,
    TIMES_END,
    ForeignMessageError,
    Head,
    MessageKind,
    check_times,
    read_body,
    read_frame,
    read_message,
)
from polycast.cluster.tail import tail_digest
from polycast.log.files.format import StreamPosition
from polycast.log.times import MICROS

PARTS_REACH = 100_000
"""Messages of the stream after which unfinished parts are dropped."""
PROPOSERS_AT_MOST = 1_000
"""Names of nodes that ever proposed: they are in the header of every group of the log."""
AHEAD_MICROS = 300 * MICROS
RESULT = struct.Struct("<qBqqqqq")
FindOwn = Callable[[Head, bytes], Sequence[Proposal] | None]


class Verdict(Enum):
    APPLIED = 1
    PART = 2
    """Applied with the last part."""
    IGNORED = 3
    """Not the next message of its incarnation."""
    FOREIGN = 4


class StreamOutcome(NamedTuple):
    verdict: Verdict
    head: Head | None = None
    applied: Sequence[Applied] = ()
    error: str = ""
    """Reason why a foreign message is not a proposal."""
    frame: StagedFrame | None = None
    ahead_micros: int = 0
    """How far the clock of the proposer is ahead of the stream, if its time was replaced."""


@dataclass(slots=True)
class Parts:
    first: int
    """The stream sequence of the first part."""
    number: int
    found: list[memoryview] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)

    def add(self, sequence: int, body: memoryview) -> None:
        self.found.append(body)
        self.sequences.append(sequence)


class Whole(NamedTuple):
    body: bytes | memoryview
    sequences: Sequence[int]


class ApplyMachine:
    def __init__(self, ledger: Ledger, position: StreamPosition) -> None:
        self._ledger = ledger
        self._stream = position.stream
        self.sequence = position.sequence
        self.chain = position.chain
        self.digest = position.digest
        """Of the last message."""
        self.proposers = dict(position.proposers)
        self.foreign = position.foreign
        self.first = position.first
        """All nodes remove what lies before this offset."""
        self._parts: dict[str, Parts] = {}
        self._missing = dict(position.parts)
        """Parts to collect again after a restart, by the stream sequence of the first."""
        self._frames: dict[str, Parts] = {}
        """Parts of staged frames that are read again after a restart."""
        self._staged = position.staged
        self.first_staged: Callable[[], int] = lambda: self._staged
        """The stream sequence of the oldest frame that waits for its commit; 0: none waits."""

    @property
    def resume(self) -> int:
        """The stream sequence to read from."""
        resume = to_resume(self.position)
        return min(resume, self._staged or resume)

    @property
    def position(self) -> StreamPosition:
        topics = self._ledger.topics
        parts = {node: parts.first for node, parts in self._parts.items()}
        return StreamPosition(
            self._stream, self.sequence, self.chain, dict(self.proposers), topics.generations, topics.floor,
            self._missing | parts, self.foreign, self._ledger.micros, self.first_staged(),
            self.first, self.digest,
        )  # fmt: skip

    @property
    def trusted_micros(self) -> int:
        """Times up to this one are taken as they are, whatever the time of the stream message."""
        return self._ledger.micros + AHEAD_MICROS

    def apply(
        self, sequence: int, data: bytes, own: FindOwn = lambda head, data: None, stamp: int = TIMES_END
    ) -> StreamOutcome:
        """`own` has the proposals of a message that this node sent, so that they are not decoded; `stamp` is the
        time of the stream message, in microseconds since the epoch."""
        if sequence <= self.sequence:
            return StreamOutcome(Verdict.IGNORED, frame=self._collect_again(sequence, data))
        self._frames.clear()
        self._drop_parts(sequence)
        try:
            outcome = self._apply(sequence, data, own, stamp)
        except ForeignMessageError as error:
            self.foreign += 1
            outcome = StreamOutcome(Verdict.FOREIGN, None, (), str(error))
        self.sequence, self.digest = sequence, tail_digest(data)
        self._extend_chain(data, outcome)
        return outcome

    def _apply(self, sequence: int, data: bytes, own: FindOwn, stamp: int) -> StreamOutcome:
        head, body = read_message(data)
        if not self.is_next(head):
            return StreamOutcome(Verdict.IGNORED, head)
        self._end_earlier(head)
        whole = self._parts_of(sequence, head, body)
        proposals: Sequence[Proposal] = ()
        frame = None
        try:
            if whole and head.kind is MessageKind.FRAME:
                frame = read_frame(*whole, head.unpacked)
            elif whole:
                proposals = check_times(own(head, data) or read_body(whole.body, head.unpacked))
        except ForeignMessageError:
            self._parts.pop(head.node, None)
            raise
        self.proposers[head.node] = (head.incarnation, head.number)
        if whole is None:
            return StreamOutcome(Verdict.PART, head)
        self._parts.pop(head.node, None)
        if frame:
            return StreamOutcome(Verdict.APPLIED, head, frame=frame)
        ahead = 0
        applied = []
        for proposal in proposals:
            if proposal.micros > max(stamp, self._ledger.micros) + AHEAD_MICROS:
                ahead = proposal.micros - stamp
                proposal = proposal._replace(micros=stamp)
            applied.append(self._ledger.apply(proposal))
        self.first = max(self.first, min(head.first, self._ledger.next_offset))
        return StreamOutcome(Verdict.APPLIED, head, applied, ahead_micros=ahead)

    def is_next(self, head: Head) -> bool:
        """Whether this message is applied next, rather than ignored."""
        if head.node not in self.proposers and len(self.proposers) >= PROPOSERS_AT_MOST:
            raise ForeignMessageError(f"{head.node} is one name too many: {PROPOSERS_AT_MOST:,} nodes are known")
        incarnation, number = self.proposers.get(head.node, (0, 0))
        if head.incarnation > incarnation:
            return head.number == 1 and not head.part
        return head.incarnation == incarnation and head.number == number + 1

    def _end_earlier(self, head: Head) -> None:
        """The first message of an incarnation drops the unfinished parts of the one before."""
        if head.number == 1:
            self._parts.pop(head.node, None)
            self._missing.pop(head.node, None)

    def _parts_of(self, sequence: int, head: Head, body: memoryview) -> Whole | None:
        """The whole body, with the last part."""
        if head.parts == 1:
            return Whole(body, [sequence])
        if sum([len(each.found) for each in self._parts.values()]) >= PARTS_AT_MOST:
            raise ForeignMessageError(f"{PARTS_AT_MOST:,} parts of unfinished messages wait already")
        if head.part == 0:
            self._parts[head.node] = Parts(sequence, head.number)
        parts = self._parts.get(head.node)
        if parts is None or len(parts.found) != head.part:
            raise ForeignMessageError(f"part {head.part} without the parts before it")
        parts.add(sequence, body)
        return Whole(b"".join(parts.found), parts.sequences) if head.part == head.parts - 1 else None

    def _drop_parts(self, sequence: int) -> None:
        """Drops the parts of proposers that did not finish."""
        for node in [node for node, parts in self._parts.items() if sequence - parts.first > PARTS_REACH]:
            del self._parts[node]
        for node in [node for node, first in self._missing.items() if sequence - first > PARTS_REACH]:
            del self._missing[node]

    def _collect_again(self, sequence: int, data: bytes) -> StagedFrame | None:
        """Applied before the restart, but for unfinished parts, and for frames that wait for their commit."""
        try:
            head, body = read_message(data)
            self._collect_parts(sequence, head, body)
            return self._collect_frame(sequence, head, body) if head.kind is MessageKind.FRAME else None
        except ForeignMessageError:
            return None

    def _collect_frame(self, sequence: int, head: Head, body: memoryview) -> StagedFrame | None:
        """Equal messages of one proposer have equal numbers: it does not matter which of them is taken."""
        if head.part == 0:
            self._frames[head.node] = Parts(sequence, head.number)
        parts = self._frames.get(head.node)
        if parts is None or (parts.number + head.part, len(parts.found)) != (head.number, head.part):
            return None
        parts.add(sequence, body)
        if head.part < head.parts - 1:
            return None
        del self._frames[head.node]
        return read_frame(b"".join(parts.found), parts.sequences, head.unpacked)

    def _collect_parts(self, sequence: int, head: Head, body: memoryview) -> None:
        if sequence == self._missing.get(head.node):
            del self._missing[head.node]
            self._parts[head.node] = Parts(sequence, head.number, [body], [sequence])
            return
        parts = self._parts.get(head.node)
        incarnation, number = self.proposers.get(head.node, (0, 0))
        if (
            parts
            and (head.incarnation, head.number) == (incarnation, parts.number + len(parts.found))
            and head.part == len(parts.found)
            and head.number <= number
        ):
            parts.add(sequence, body)

    def _extend_chain(self, data: bytes, outcome: StreamOutcome) -> None:
        ledger = self._ledger
        digest = xxhash.xxh3_128(self.chain.encode())
        digest.update(data)
        digest.update(
            RESULT.pack(
                self.sequence, outcome.verdict.value, ledger.next_offset, ledger.micros, ledger.topics.floor,
                self.first,
                sum(sum(burst.sequences) for applied in outcome.applied for burst in applied.proposal.bursts)
                % 2**63,
            )
        )  # fmt: skip
        self.chain = digest.hexdigest()


def to_resume(position: StreamPosition) -> int:
    """The stream sequence that apply needs next."""
    return min([position.sequence + 1, *position.parts.values()])
