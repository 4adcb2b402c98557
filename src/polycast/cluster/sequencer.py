"""The sequencer of a node: proposals go to the stream, and every message of the stream is applied.

A message of this node is applied when the servers acknowledge it, if the message before it is applied already: the
acknowledgement has its stream sequence, so nobody else's message is between. Its reader checks the bytes later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from polycast.broker import Applied, Ledger, Proposal, StagedFrame
from polycast.broker.sequencer import OnOwn, OnRemote
from polycast.cluster.frames import read_commit_rows, read_frame
from polycast.cluster.machine import ApplyMachine, FindOwn, StreamOutcome, Verdict
from polycast.cluster.messages import COMMIT_MESSAGES_AT_MOST, ForeignMessageError, Head, MessageKind, read_message
from polycast.cluster.proposer import OnApplied, Outgoing, Proposer
from polycast.cluster.reader import Delivered, RemovedError, StreamReader
from polycast.cluster.stream import ApiError, Stream, StreamInfo
from polycast.cluster.tail import check_tail
from polycast.cluster.tasks import end_tasks
from polycast.errors import ClusterError
from polycast.log.durable import Durable
from polycast.log.log import Log
from polycast.log.times import MICROS
from polycast.model import BatchKey

log = logging.getLogger("polycast.cluster")

BEHIND_SECONDS = 0.005
FULL_SHARE = 2
"""Past this multiple of the limit, proposals are refused."""
PROGRESS_SECONDS = 5.0
WARN_SECONDS = 60.0


class JetStreamSequencer:
    commit_messages = COMMIT_MESSAGES_AT_MOST

    def __init__(self, node: str, stream: Stream, node_log: Log, pending_bytes: int, info: StreamInfo) -> None:
        """`info`: of the stream at the start."""
        self.node = node
        self.stream = stream
        self.proposed = 0
        self.foreign = 0
        """Messages of the stream that are no proposals."""
        self._proposed_first = 0
        self._log = node_log
        self._limit = pending_bytes
        self._first, self._target = info.first, info.last
        self._read_to = 0
        """The stream sequence that was read last: after a restart, staged frames are read again."""
        self.proposer = Proposer(node, stream.publish, self._apply_accepted)
        self._unread: dict[int, bytes] = {}
        """Applied when the servers acknowledged them, and not read yet: messages by stream sequence."""
        self._unread_bytes = 0
        self.reader = StreamReader(stream, node, info.id, self._check_tail)
        self._warned_of_clock = 0.0
        self.machine: ApplyMachine
        self.failed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        """Its exception says why this node cannot go on."""
        self._caught_up = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.on_applied: list[Callable[[int, str], None]] = []
        """Called with the stream sequence and the chain after every message."""
        self.before_serving: list[Callable[[], Awaitable[None]]] = []
        """Awaited when this node has caught up. What they raise stops the node."""
        node_log.on_durable(self._check_durable)

    # -- for the server ----------------------------------------------------------------------------------

    def attach(self, ledger: Ledger, on_remote: OnRemote, on_own: OnOwn, on_turn: Callable[[], None]) -> None:
        assert self._log.position
        self.machine = ApplyMachine(ledger, self._log.position)
        self._log.housekeeping.remove_before(self.machine.first)
        self._on_remote = on_remote
        self._on_own = on_own
        self._on_turn = on_turn

    def propose(self, proposal: Proposal, on_applied: OnApplied) -> None:
        self.proposed += 1
        self.proposer.put(proposal, on_applied)

    def attach_stages(
        self,
        on_frame: Callable[[StagedFrame], None],
        on_batch: Callable[[BatchKey], None],
        first: Callable[[], int],
    ) -> None:
        self._on_frame = on_frame
        self._on_batch = on_batch
        self.machine.first_staged = first

    def stage(self, frame: StagedFrame, on_applied: Callable[[], None]) -> None:
        self.proposer.put_frame(frame, on_applied)

    async def read_frame(self, sequences: Sequence[int]) -> StagedFrame:
        return await read_frame(self.stream, sequences)

    async def reach_end(self) -> None:
        info = await self.stream.info()
        if info and not info.confirmed:
            raise ApiError(503, "the leader of the stream is not in contact with a majority of the servers")
        while info and self._read_to < info.last and not self.failed.done():
            await asyncio.sleep(BEHIND_SECONDS)

    def propose_retention(self) -> None:
        """Proposes the retention offset of this node, once per change."""
        wanted = self._log.housekeeping.removable
        if wanted > max(self.machine.first, self._proposed_first) and self.proposer.incarnation:
            self._proposed_first = wanted
            self.proposer.propose_first(wanted)

    def has_room(self) -> bool:
        return self.proposer.pending_bytes < FULL_SHARE * self._limit

    def is_behind(self, share: float) -> bool:
        return self.proposer.pending_bytes > self._limit * share

    async def catch_up(self) -> None:
        """Returns when this node has applied what the stream had at its start. Raises what stopped it."""
        started, before = time.monotonic(), self.machine.sequence
        self._reading = asyncio.create_task(self._read())
        try:
            await self._reach_target()
            log.info("caught up: %s messages of the stream in %.3f s", f"{self.machine.sequence - before:,}",
                     time.monotonic() - started)  # fmt: skip
            for check in self.before_serving:
                await check()
        except BaseException:
            await end_tasks([self._reading])
            raise
        incarnation, _ = self.machine.proposers.get(self.node, (0, 0))
        self.proposer.start(max(incarnation + 1, time.time_ns() // 1_000_000))

    async def _reach_target(self) -> None:
        waiting: asyncio.Future[object] = asyncio.ensure_future(self._caught_up.wait())
        try:
            while not waiting.done() and not self.failed.done():
                await asyncio.wait(
                    (waiting, asyncio.ensure_future(self.failed)),
                    timeout=PROGRESS_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not waiting.done():
                    log.info("catching up: message %s of %s", f"{self.machine.sequence:,}", f"{self._target:,}")
        finally:
            waiting.cancel()
        if self.failed.done():
            self.failed.result()

    async def drain(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.proposer.pending_bytes and not self.failed.done() and time.monotonic() < deadline:
            await asyncio.sleep(BEHIND_SECONDS)
        if self.proposer.pending_bytes:
            log.warning("%s bytes were not applied in time; their publishers got no acknowledgement",
                        f"{self.proposer.pending_bytes:,}")  # fmt: skip
        await end_tasks([self._reading] if self._reading else [])
        await self.proposer.stop()

    def fail(self, error: ClusterError) -> None:
        """Stops this node: a node that cannot apply must stop."""
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # retrieved, whether or not anybody waits

    # -- applying ----------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            start = max(self._first, self.machine.resume)
            self._note_read(start - 1)
            async for delivered in self.reader.read(start):
                while self._log.is_behind():
                    await asyncio.sleep(BEHIND_SECONDS)
                if self._is_applied(delivered):
                    continue
                find = await self._find_proposals(delivered)
                if self.failed.done():
                    return
                self._apply(delivered, find)
                await asyncio.sleep(0)
        except RemovedError as error:
            self.fail(ClusterError(str(error), "start this node again: it copies the log of another node"))
        except ClusterError as error:
            self.fail(error)
        except Exception as error:
            self._fail_to_apply(error)

    async def _check_tail(self) -> None:
        await check_tail(self.stream, self.machine.sequence, self.machine.digest)

    def _fail_to_apply(self, error: Exception) -> None:
        log.error("the stream cannot be applied", exc_info=error)
        self.fail(ClusterError(f"the stream cannot be applied: {error!r}"))

    def _is_applied(self, delivered: Delivered) -> bool:
        """Whether the acknowledgement has applied this message. Raises ValueError if the servers have another."""
        applied = self._unread.pop(delivered.sequence, None)
        self._unread_bytes -= len(applied or b"")
        if applied not in (None, delivered.data):
            raise ValueError(f"message {delivered.sequence:,} is not the one that the servers acknowledged")
        return applied is not None

    def _apply_accepted(self) -> None:
        try:
            sequence = self.machine.sequence + 1
            while (outgoing := self.proposer.find_accepted(sequence)) and self._needs_no_reading(outgoing):
                self._unread[sequence] = outgoing.data
                self._unread_bytes += len(outgoing.data)
                self._apply(Delivered(sequence, outgoing.data, 0), self._find_own)
                sequence += 1
        except Exception as error:
            self._fail_to_apply(error)

    def _needs_no_reading(self, outgoing: Outgoing) -> bool:
        """Bursts in one part, with times that do not depend on that of the stream message, while the reader keeps
        up. A repeated id is not enough: the reader compares the bytes first."""
        proposals = [pending.proposal for pending in outgoing.pending]
        if outgoing.repeated or self._unread_bytes > self._limit:
            return False
        if not proposals or outgoing.head.parts > 1 or outgoing.head.kind is not MessageKind.BURSTS:
            return False
        if self.failed.done() or self._log.is_behind():
            return False
        return max([proposal.micros for proposal in proposals]) <= self.machine.trusted_micros

    async def _find_proposals(self, delivered: Delivered) -> FindOwn:
        """Reads the rows of a commit of another node before it is applied."""
        if delivered.sequence <= self.machine.sequence:
            return self._find_own
        try:
            head, body = read_message(delivered.data)
            if head.kind is not MessageKind.COMMIT or not self.machine.is_next(head):
                return self._find_own
            if self._is_own(head) and self.proposer.find(head):
                return self._find_own
            proposal = await read_commit_rows(self.stream, body, delivered.sequence)
            return lambda head, data: [proposal]
        except ForeignMessageError as error:
            return partial(_refuse, error)

    def _apply(self, delivered: Delivered, find: FindOwn) -> None:
        self._log.begin_together()
        outcome = self.machine.apply(delivered.sequence, delivered.data, find, delivered.micros)
        if outcome.frame:
            self._on_frame(outcome.frame)
        for applied in outcome.applied:
            if applied.proposal.batch:
                self._on_batch(applied.proposal.batch)
        done = outcome.verdict in (Verdict.APPLIED, Verdict.PART) and self._is_own(outcome.head)
        outgoing = self.proposer.find(outcome.head) if done and outcome.head else None
        if outgoing and outgoing.frame:
            outgoing.frame.on_applied()
        elif outgoing:
            self._apply_own(outgoing, outcome.applied)
        else:
            for applied in outcome.applied:
                self._on_remote(applied)
        self._log.end_together(lambda: self.machine.position)
        self._after(delivered, outcome, outgoing)
        self._on_turn()

    def _apply_own(self, outgoing: Outgoing, found: Sequence[Applied]) -> None:
        for pending, applied in zip(outgoing.pending, found, strict=True):
            self._on_own(partial(pending.on_applied, applied))

    def _after(self, delivered: Delivered, outcome: StreamOutcome, outgoing: Outgoing | None) -> None:
        head = outcome.head
        if outgoing:
            self.proposer.applied(outgoing)
        elif self._is_own(head) and head and outcome.verdict is Verdict.IGNORED:
            self.proposer.ignored(head, delivered.sequence)
        elif head and head.node == self.node and self.proposer.incarnation:
            if head.incarnation > self.proposer.incarnation:
                self.fail(
                    ClusterError(f"another node with the name {self.node} has started", "--node names each node")
                )
        elif outcome.verdict is Verdict.FOREIGN:
            self.foreign += 1
            log.error("message %s of the stream is no proposal, and is skipped by all nodes: %s; only nodes may "
                      "publish to %s", f"{delivered.sequence:,}", outcome.error, self.stream.subject)  # fmt: skip
            if self.proposer.waits_for(delivered.data):
                text = f"all nodes skip a message of this node: {outcome.error}"
                self.fail(ClusterError(text, "start this node again, with a clock that is right"))
        if outcome.ahead_micros and head:
            self._warn_of_clock(head.node, outcome.ahead_micros)
        self._log.housekeeping.remove_before(self.machine.first)
        for listener in self.on_applied:
            listener(self.machine.sequence, self.machine.chain)
        self._note_read(delivered.sequence)

    def _warn_of_clock(self, node: str, micros: int) -> None:
        now = time.monotonic()
        if now > self._warned_of_clock:
            self._warned_of_clock = now + WARN_SECONDS
            log.warning("the clock of the node %s is %.0f s ahead of the servers; its messages get the time of "
                        "the servers", node, micros / MICROS)  # fmt: skip

    def _find_own(self, head: Head, data: bytes) -> Sequence[Proposal] | None:
        outgoing = self.proposer.find(head) if self._is_own(head) else None
        if outgoing is None or not outgoing.pending:
            return None
        if outgoing.data != data:
            raise ValueError(f"message {head.number:,} of this node has other bytes than it sent")
        return [pending.proposal for pending in outgoing.pending]

    def _is_own(self, head: Head | None) -> bool:
        return head is not None and (head.node, head.incarnation) == (self.node, self.proposer.incarnation)

    def _note_read(self, sequence: int) -> None:
        self._read_to = max(self._read_to, sequence)
        if sequence >= self._target:
            self._caught_up.set()

    def _check_durable(self, durable: Durable) -> None:
        if durable.reason:
            hint = "make room on the disk and start this node again: it goes on where its log ends"
            self.fail(ClusterError(f"the log cannot be written: {durable.reason}", hint))


def _refuse(error: ForeignMessageError, head: Head, data: bytes) -> None:
    raise error
