"""The proposer: sends this node's proposals to the stream until they are applied.

Proposals of one event-loop turn form one message; at the in-flight limit, proposals accumulate.
Messages are numbered. If the stream has them in another order, all nodes ignore those behind the missing one: the
proposer, which reads its own messages, sends them again, under another id, because JetStream drops a repeated id.
A message whose fate is unknown is sent again under the same id."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from polycast.broker import Applied, Proposal, StagedFrame
from polycast.cluster.messages import (
    Head,
    MessageKind,
    cut_body,
    pack_body,
    write_body,
    write_frame,
    write_message,
)
from polycast.cluster.stream import Accepted, ApiError
from polycast.cluster.tasks import end_tasks

log = logging.getLogger("polycast.cluster")

IN_FLIGHT = 6
GATHER_BYTES = 256 * 1024
"""A message is closed when it has so many bytes of payloads."""
FIRST_TIMEOUT_SECONDS = 1.5
LAST_TIMEOUT_SECONDS = 6.0
RETRY_SECONDS = 0.1
UNHURRIED_SECONDS = 1.0
TRANSIENT = (503, 429, 409, 500)
"""No leader, too many requests, still in process, no quorum."""

Publish = Callable[[bytes, str, float], Awaitable[Accepted]]
OnApplied = Callable[[Applied], None]


class Pending(NamedTuple):
    proposal: Proposal
    on_applied: OnApplied
    size: int


class PendingFrame(NamedTuple):
    frame: StagedFrame
    on_applied: Callable[[], None]
    size: int


@dataclass(slots=True, eq=False)
class Outgoing:
    head: Head
    data: bytes
    pending: Sequence[Pending] = ()
    """The proposals that the last part of a body completes."""
    frame: PendingFrame | None = None
    """The staged frame that the last part of a body completes."""
    attempt: int = 0
    stream_sequence: int = 0
    """The stream sequence, from the servers' acknowledgement; 0: not acknowledged."""
    repeated: bool = False
    """See `Accepted`."""
    ignored: bool = False
    task: asyncio.Task[None] | None = field(default=None)


class Proposer:
    def __init__(self, node: str, publish: Publish, on_accepted: Callable[[], None] = lambda: None) -> None:
        """`on_accepted` is called when the servers have acknowledged a message."""
        self.node = node
        self._publish = publish
        self._on_accepted = on_accepted
        self.incarnation = 0
        self._number = 0
        self._gathered: deque[Pending | PendingFrame] = deque()
        self._unapplied: deque[Outgoing] = deque()
        """Sent, in the order of their numbers."""
        self._scheduled = False
        self._failing_since = 0.0
        self.pending_bytes = 0

    @property
    def pending_proposals(self) -> int:
        """Of publishers, and frames of stages, that are not applied yet."""
        sent = sum(len(outgoing.pending) + bool(outgoing.frame) for outgoing in self._unapplied)
        return sent + len(self._gathered)

    @property
    def unaccepted_seconds(self) -> float:
        """How long the servers have accepted no message; 0: they accept messages."""
        return time.monotonic() - self._failing_since if self._failing_since else 0.0

    def start(self, incarnation: int) -> None:
        """Sends earlier proposals as well."""
        self.incarnation = incarnation
        self._send()

    async def stop(self) -> None:
        await end_tasks(outgoing.task for outgoing in self._unapplied if outgoing.task)

    def put(self, proposal: Proposal, on_applied: OnApplied) -> None:
        size = sum([len(burst.block) for burst in proposal.bursts]) or 1
        self._gather(Pending(proposal, on_applied, size))

    def put_frame(self, frame: StagedFrame, on_applied: Callable[[], None]) -> None:
        self._gather(PendingFrame(frame, on_applied, len(frame.data) or 1))

    def _gather(self, pending: Pending | PendingFrame) -> None:
        self.pending_bytes += pending.size
        self._gathered.append(pending)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send_turn)

    def propose_first(self, first: int) -> None:
        """Retention: all nodes remove what lies before this offset."""
        self._number += 1
        head = Head(self.node, self.incarnation, self._number, first=first)
        self._unapplied.append(Outgoing(head, write_message(head, write_body([]))))
        self._start(self._unapplied[-1])

    # -- sending -----------------------------------------------------------------------------------------

    def _send_turn(self) -> None:
        self._scheduled = False
        self._send()

    def _send(self) -> None:
        while self.incarnation and self._gathered and self._in_flight() < IN_FLIGHT:
            for outgoing in self._next_messages():
                self._unapplied.append(outgoing)
                self._start(outgoing)

    def _in_flight(self) -> int:
        return sum([not outgoing.stream_sequence for outgoing in self._unapplied])

    def _next_messages(self) -> list[Outgoing]:
        """A frame and a commit are messages of their own."""
        first = self._gathered.popleft()
        if isinstance(first, PendingFrame):
            messages = self._cut(write_frame(first.frame), MessageKind.FRAME)
            messages[-1].frame = first
            return messages
        taken = [first] if first.proposal.bulk else self._take(first)
        kind = MessageKind.COMMIT if first.proposal.bulk else MessageKind.BURSTS
        messages = self._cut(write_body([each.proposal for each in taken]), kind)
        messages[-1].pending = taken
        return messages

    def _take(self, first: Pending) -> list[Pending]:
        taken, size = [first], first.size
        while self._gathered:
            following = self._gathered[0]
            size += following.size
            if isinstance(following, PendingFrame) or following.proposal.bulk or size > GATHER_BYTES:
                break
            taken.append(following)
            self._gathered.popleft()
        return taken

    def _cut(self, body: bytes, kind: MessageKind) -> list[Outgoing]:
        packed, unpacked = (body, 0) if kind is MessageKind.COMMIT else pack_body(body)
        parts = cut_body(packed)
        messages = []
        for index, part in enumerate(parts):
            self._number += 1
            head = Head(self.node, self.incarnation, self._number, index, len(parts), kind, unpacked=unpacked)
            messages.append(Outgoing(head, write_message(head, part)))
        return messages

    def _start(self, outgoing: Outgoing) -> None:
        outgoing.task = asyncio.get_running_loop().create_task(self._deliver(outgoing))

    async def _deliver(self, outgoing: Outgoing) -> None:
        head, seconds = outgoing.head, FIRST_TIMEOUT_SECONDS
        again = f"-{outgoing.attempt}" if outgoing.attempt else ""
        message_id = f"{head.node}-{head.incarnation}-{head.number}{again}"
        while True:
            try:
                accepted = await self._publish(outgoing.data, message_id, seconds)
                outgoing.stream_sequence, outgoing.repeated = accepted
                break
            except ApiError as error:
                self._note_failure(error)
                await asyncio.sleep(RETRY_SECONDS if error.code in TRANSIENT else UNHURRIED_SECONDS)
            except Exception as error:  # such as a response that is no JSON: the message must not be forgotten
                self._note_failure(error)
                await asyncio.sleep(UNHURRIED_SECONDS)
            seconds = min(2 * seconds, LAST_TIMEOUT_SECONDS)
        if self._failing_since:
            log.warning("the servers accept messages again, after %.1f s", time.monotonic() - self._failing_since)
            self._failing_since = 0.0
        self._on_accepted()
        self._send()

    def _note_failure(self, error: Exception) -> None:
        now = time.monotonic()
        if not self._failing_since:
            self._failing_since = now
            log.warning("the servers have not accepted a message, it is sent again: %s", error or repr(error))

    # -- what the stream has -----------------------------------------------------------------------------

    @property
    def _first(self) -> Outgoing | None:
        """The message that is applied next."""
        return self._unapplied[0] if self._unapplied else None

    def find(self, head: Head) -> Outgoing | None:
        """The message with this head, if it is the next one of this incarnation."""
        return self._first if self._first and head == self._first.head else None

    def find_accepted(self, sequence: int) -> Outgoing | None:
        """The message with this stream sequence, if it is the next one of this incarnation."""
        return self._first if self._first and self._first.stream_sequence == sequence else None

    def waits_for(self, data: bytes) -> bool:
        return any(outgoing.data == data for outgoing in self._unapplied)

    def applied(self, outgoing: Outgoing) -> None:
        self._unapplied.popleft()
        done = [outgoing.frame] if outgoing.frame else outgoing.pending
        self.pending_bytes -= sum(pending.size for pending in done)
        if outgoing.task and not outgoing.stream_sequence:
            outgoing.task.cancel()
        if self._unapplied and self._unapplied[0].ignored:
            self._send_again(self._unapplied[0])
        self._send()

    def ignored(self, head: Head, sequence: int) -> None:
        """All nodes ignored this message, because one before it is missing."""
        for outgoing in self._unapplied:
            if outgoing.head == head:
                outgoing.ignored = True
        first = self._first
        if first and 0 < first.stream_sequence < sequence and first.head.number < head.number:
            self._send_again(first)  # the servers lost it

    def _send_again(self, outgoing: Outgoing) -> None:
        if outgoing.task:
            outgoing.task.cancel()
        outgoing.ignored, outgoing.stream_sequence = False, 0
        outgoing.attempt += 1
        self._start(outgoing)
