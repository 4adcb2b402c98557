"""The send queue of one connection, and what happens when it exceeds `limits.queue_bytes`.

`push` gathers blocks, `flush` passes them to the transport in one call. Blocks are shared between connections and
never joined for one of them.

    policy       past the limit
    disconnect   close the connection
    drop         drop new messages; replies are sent up to twice the limit
    spill        serve the connection from the log until it has caught up
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from polycast.dialects.session import Session
from polycast.model import Buffer, Encoded
from polycast.server.io import sockets
from polycast.server.io.connection_state import ConnectionState
from polycast.server.io.memory_budget import BudgetMember, MemoryBudget
from polycast.server.stats.counters import Counters

log = logging.getLogger("polycast.connection")

LARGE_BYTES = 256 * 1024
"""For less, it takes longer to get the interpreter back than to send."""
REPLIES_SHARE = 2
"""Policy `drop` still queues replies up to this many times `limits.queue_bytes`."""
CLOSING, CLOSED = ConnectionState.CLOSING, ConnectionState.CLOSED


class QueueListener(Protocol):
    """What a send queue needs of the listener of its connection."""

    counters: Counters
    policy: str
    queue_bytes: int
    budget: MemoryBudget

    dropped: Callable[[Any, int, int], None]
    """The connection lost messages: how many, and their bytes."""
    spill: Callable[[Any], None]
    """Serve the connection from the log, from the first message that it has not been sent."""


class QueueOwner(BudgetMember, Protocol):
    """What a send queue needs of its connection."""

    state: ConnectionState
    touched_at: float

    def disconnect(self, kind: str, reason: str) -> None: ...


class SendQueue:
    __slots__ = (
        "_dropped",
        "_listener",
        "_owner",
        "_pending",
        "_pending_bytes",
        "_pending_messages",
        "_progress",
        "_replies",
        "_session",
        "_spill_limit",
        "_transport",
        "_transport_full",
        "_withholding",
        "bytes_out",
        "limit",
        "limit_name",
        "messages_out",
        "spilled",
    )

    def __init__(self, owner: QueueOwner, listener: QueueListener, session: Session) -> None:
        self._owner = owner
        self._transport: asyncio.Transport
        self.bytes_out = self.messages_out = 0
        self.limit, self.limit_name = listener.queue_bytes, "limits.queue_bytes"
        self.spilled = False
        """Whether the connection is served from the log; live messages are ignored."""
        self._spill_limit = 0
        """The limit for replies while the connection is served from the log."""
        self._pending: list[Buffer] = []
        self._pending_bytes = self._pending_messages = 0
        self._replies: list[Buffer] = []
        """Pending replies; never dropped."""
        self._dropped = 0
        """Messages dropped since the queue was last written to."""
        self._transport_full = False
        """Whether the transport's buffer is above its high-water mark."""
        self._withholding = False
        """Whether the session withheld messages at the last flush."""
        self._progress = (0, owner.touched_at)
        """The bytes that the peer had received, and when that number last changed."""
        self.attach(listener, session)

    def attach(self, listener: QueueListener, session: Session) -> None:
        """The dialect of a connection may change; its listener and session change with it."""
        self._listener = listener
        self._session = session

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def close(self) -> None:
        self._report_drops()
        self._clear()

    # -- writing -----------------------------------------------------------------------------------------

    def push(self, blocks: Iterable[Buffer], size: int, messages: int) -> None:
        """Queue blocks for the next flush; without `messages`, they are a reply."""
        if not messages:
            self._replies += blocks
        elif self.spilled:
            return
        self._pending += blocks
        self._pending_bytes += size
        self._pending_messages += messages

    def push_replayed(self, encoded: Encoded, messages: int) -> None:
        """Write messages from the log at once: the replay itself waits while the queue is long."""
        self.flush()
        if self._is_closing():
            return
        self._pending += encoded.blocks
        self._pending_bytes, self._pending_messages = encoded.size, messages
        self._listener.counters.lossy += encoded.lossy
        self._note_withheld(self._session.withheld_bytes)
        self._write()
        self._clear()

    def flush(self) -> None:
        withheld = self._session.withheld_bytes
        if withheld or self._withholding:
            self._note_withheld(withheld)
        elif not self._pending:
            return
        queued = self._transport.get_write_buffer_size() + withheld
        limit = self._spill_limit if self.spilled else self.limit
        fits = not queued or queued + self._pending_bytes <= limit
        state = self._owner.state
        if state is CLOSING or state is CLOSED:
            pass
        elif fits:
            self._write()
        elif self._listener.policy == "spill" and not self.spilled and self._pending_messages:
            self._write()
            self.start_spill()
            self._listener.spill(self._owner)
        elif self._listener.policy == "drop" and not withheld:
            self._drop(queued)
        else:
            self._disconnect(queued)
        self._clear()

    def _write(self) -> None:
        if self._dropped:
            self._report_drops()
        if not self._pending:
            return
        blocks: Sequence[Buffer] = self._pending
        if self._pending_bytes >= LARGE_BYTES:
            blocks = sockets.send_large(self._transport, blocks)
        if blocks:
            self._transport.writelines(blocks)
        counters = self._listener.counters
        counters.messages_out += self._pending_messages
        self.messages_out += self._pending_messages
        counters.bytes_out += self._pending_bytes
        self.bytes_out += self._pending_bytes
        self._owner.touched_at = time.monotonic()

    def _clear(self) -> None:
        self._pending = []
        self._replies = []
        self._pending_bytes = self._pending_messages = 0

    def _is_closing(self) -> bool:
        return self._owner.state in (CLOSING, CLOSED)

    # -- past the limit ----------------------------------------------------------------------------------

    def start_spill(self) -> None:
        """Ignore live messages: the connection is served from the log."""
        self.spilled = True
        self._spill_limit = self.queued() + self._listener.queue_bytes

    def end_spill(self) -> None:
        self.spilled = False

    def _drop(self, queued: int) -> None:
        """Drop messages, send replies."""
        replies = sum(map(len, self._replies))
        if queued + replies > REPLIES_SHARE * self.limit:
            self._disconnect(queued)
            return
        if replies:
            self._transport.writelines(self._replies)
            self._listener.counters.bytes_out += replies
            self.bytes_out += replies
        if not self._pending_messages:
            return
        self._listener.counters.dropped += self._pending_messages
        self._listener.dropped(self._owner, self._pending_messages, self._pending_bytes - replies)
        if not self._dropped:
            log.warning(
                "%s: dropping new messages: %s bytes are queued, the limit is %s (%s)",
                self._owner, f"{queued:,}", f"{self.limit:,}", self.limit_name,
            )  # fmt: skip
        self._dropped += self._pending_messages

    def _report_drops(self) -> None:
        if self._dropped:
            log.warning("%s: dropped %s messages", self._owner, f"{self._dropped:,}")
            self._dropped = 0

    def _disconnect(self, queued: int) -> None:
        pending = f"{self._pending_messages:,} new messages" if self._pending_messages else "replies"
        limit = f"the limit of {self.limit:,} ({self.limit_name})"
        self._owner.disconnect("slow", f"too slow: {queued:,} bytes are queued, {pending} exceed {limit}")

    # -- flow control ------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._transport_full = True
        self._listener.budget.fell_behind(self._owner)

    def resume_writing(self) -> None:
        self._transport_full = False
        if not self._withholding:
            self._listener.budget.caught_up(self._owner)
        self._report_drops()

    def _note_withheld(self, withheld: int) -> None:
        """Messages that the session withholds count as queued."""
        self._withholding = withheld > 0
        if withheld:
            self._listener.budget.fell_behind(self._owner)
        elif not self._transport_full:
            self._listener.budget.caught_up(self._owner)

    # -- what is queued ----------------------------------------------------------------------------------

    def queued(self) -> int:
        """Bytes that the transport has not sent yet, and those that the session withholds."""
        return self.unsent() + self._session.withheld_bytes

    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def undelivered(self) -> int:
        """Bytes that the peer's system has not acknowledged."""
        return self.unsent() + sockets.unacknowledged(self._transport.get_extra_info("socket"))

    def stalled_for(self, now: float) -> float:
        """For how many seconds the peer has received nothing of what is queued."""
        received = self.bytes_out - self.undelivered()
        if received != self._progress[0] or not self.unsent():
            self._progress = (received, now)
        return now - self._progress[1]
