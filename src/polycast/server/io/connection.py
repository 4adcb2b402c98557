"""One connection, whatever its dialect: feed the session, collect its events, write what is due.

Reading: `get_buffer` and `buffer_updated` (asyncio's BufferedProtocol), the block to the session, its events to
the exchange. Writing: `push` gathers blocks, `flush` hands them to the transport in one call; blocks are shared
between connections and never joined for one of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Protocol, cast

from polycast.dialects.contract import Role
from polycast.dialects.guard import Guard
from polycast.dialects.session import Session
from polycast.errors import ForbiddenError, PeerError
from polycast.model import Buffer, Encoded, Event
from polycast.routing import Subscriber
from polycast.server.io import sockets
from polycast.server.io.address_groups import address_group_of
from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.io.partial_frames import COUNTED_BYTES, PartialFrames
from polycast.server.io.receive_buffer import ReceiveBuffer
from polycast.server.stats.counters import Counters

log = logging.getLogger("polycast.connection")

TURN_SECONDS = 0.002
"""What one read may take to handle before others get their turn."""
DETAILS_AT_MOST = 1000
"""So many connections that may not do everything are named in the log when they are closed, for each reason; the
others are only counted."""
ANSWERS_SHARE = 2
"""Where messages are dropped, answers may still wait until there is so many times `limits.queue_bytes`."""


class Port(Protocol):
    """What connections of one listener share."""

    role: Role
    counters: Counters
    policy: str
    replay: str
    """What a subscriber gets first; empty: what is new."""
    queue_bytes: int
    trial_bytes: int
    """What a peer that has shown no rights may make the broker keep, in either direction."""
    budget: MemoryBudget
    unfinished: PartialFrames

    def admit(self, peer: Any, certificate: Any) -> Guard:
        """Who comes, by what its transport tells of it."""
        ...

    def speaking(self, dialect: str) -> Port:
        """The port for those who came to this listener and then chose that dialect."""
        ...

    def owes(self, connection: Connection) -> bool:
        """Whether an answer is still to come for this connection."""
        ...

    def dropped(self, connection: Connection, messages: int, size: int) -> None:
        """So many were not sent to it, and never will be."""
        ...

    def spill(self, connection: Connection) -> None:
        """It is behind: what it has not been given yet comes from the log."""
        ...

    def ending(self, connection: Connection) -> None:
        """It takes part in nothing any more; what was said to it may still be on its way."""
        ...

    def review(self, connection: Connection) -> None:
        """It has rights now, or none any more."""
        ...

    def opened(self, connection: Connection) -> bool: ...
    def received(self, connection: Connection, events: list[Event], now: float) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_choked",
        "_counted",
        "_dropped",
        "_dropping",
        "_holding",
        "_inbox",
        "_pending",
        "_pending_bytes",
        "_pending_messages",
        "_port",
        "_queue_bytes",
        "_replies",
        "_secure",
        "_sent_before",
        "_served",
        "_spill_limit",
        "_transport",
        "bytes_out",
        "closing",
        "dialed",
        "guard",
        "heard_out",
        "messages_in",
        "messages_out",
        "name",
        "opened_at",
        "origin",
        "parting",
        "session",
        "spilled",
        "subscriber",
        "touched_at",
        "trial_since",
    )

    def __init__(
        self, port: Port, session: Session, inbox: ReceiveBuffer, name: str, dialed: bool = False
    ) -> None:
        self._port = port
        self._inbox = inbox
        self.session = session
        self.name = name
        self.dialed = dialed
        self.subscriber: Subscriber
        self.guard = session.guard
        self.closing = False
        self.heard_out = False
        self.bytes_out = 0
        self.messages_in = self.messages_out = 0
        self.parting = ("left", "")
        """Why it ended, when it has: the word that is counted, and a sentence where there is one."""
        self.opened_at = self.touched_at = time.monotonic()
        self.origin = ""
        """What counts as its address."""
        self.trial_since = 0.0
        """Since when it could have shown an identity with rights, and has not; 0: it has."""
        self._served = 0
        self._queue_bytes = port.queue_bytes
        self._counted = False
        """Whether what it holds of an unfinished frame is counted."""
        self._transport: asyncio.Transport
        self._secure = False
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._pending_messages = 0
        self.spilled = False
        """Whether it is served from the log, and gets nothing that is live."""
        self._spill_limit = 0
        """What may wait for it meanwhile: answers come in either case."""
        self._replies: list[Buffer] = []
        """What of the pending is no message, but an answer to something that was said."""
        self._dropping = False
        self._dropped = 0
        self._choked = False
        self._holding = False
        self._sent_before = (0, self.opened_at)

    def __str__(self) -> str:
        return f"{self._port.role.listener} {self.name}"

    @property
    def port(self) -> Port:
        return self._port

    # -- reading -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = _peer_of(transport)
        self.name += f" {peer[0]}:{peer[1]}" if peer else " (ipc)" if peer is None else " (gone)"
        self.origin = address_group_of(peer[0] if peer else None)
        self._secure = transport.get_extra_info("ssl_object") is not None
        self.guard = self.session.guard = self._port.admit(peer, transport.get_extra_info("peercert"))
        if not self._port.opened(self):
            self.closing = True
            transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.room()

    def buffer_updated(self, count: int) -> None:
        if self.closing or self.heard_out:
            return
        began = self.touched_at = time.monotonic()
        self._port.counters.bytes_in += count
        block = self._inbox.take(count)
        if block is None:
            if self._inbox.is_full:
                self._count_unfinished(False)
            return
        now = time.time()
        received = self.session.receive(block, now)
        self._inbox.keep(block, received.consumed, received.frame_bytes, received.frame_end)
        if self.trial_since or self.guard.has_no_rights:
            self._review()
        if received.events:
            self._port.received(self, received.events, now)
        if self._counted or self._inbox.held > COUNTED_BYTES or self.session.buffered_bytes > COUNTED_BYTES:
            self._count_unfinished(received.consumed > 0 and not self.session.buffered_bytes)
        taken = time.monotonic() - began
        self._inbox.adapt(taken)
        if taken > TURN_SECONDS or self._port.budget.behind:
            self._end_turn()

    def _count_unfinished(self, begins: bool) -> None:
        """What is kept of a frame counts with that of all others; a peer without rights may keep little."""
        gathered = self.session.buffered_bytes
        held = self._inbox.held + gathered
        unfinished = self._port.unfinished
        self._counted = held > COUNTED_BYTES and not self.closing
        if not self._counted:
            unfinished.forget(self)
        elif self.guard.restricted and self._is_forbidden_to_hold():
            self.fail(ForbiddenError())
        else:
            unfinished.note(self, held, self._inbox.wanted + gathered, self.touched_at, begins)

    def _is_forbidden_to_hold(self) -> bool:
        if self.guard.has_no_rights:
            return self._inbox.expected > self._port.trial_bytes or self._port.unfinished.is_full
        topic = self.session.begun_topic(self._inbox.head(COUNTED_BYTES))
        if topic is None or self.guard.may_publish(topic):
            return False
        self.forbid("publish to", topic.decode(errors="replace"))
        return True

    def _drop_input(self) -> None:
        """Nothing more is read, so nothing need be kept of what is not finished."""
        self._inbox.drop()
        self._port.unfinished.forget(self)

    def unfinished_bytes(self) -> int:
        return self._inbox.filled + self.session.buffered_bytes

    # -- rights ------------------------------------------------------------------------------------------

    def forbid(self, act: str, what: str) -> None:
        """For whoever reads the log; the connection ends for it."""
        worth = self._port.counters.closed[ForbiddenError.kind] < DETAILS_AT_MOST
        log.log(logging.INFO if worth else logging.DEBUG, "%s: %s", self, self.guard.denial_text(act, what))

    def begin_trial(self) -> None:
        """It may do nothing, and has some time to show that it is somebody who may."""
        self.trial_since = time.monotonic()
        self._queue_bytes = self._port.trial_bytes

    def end_trial(self) -> None:
        self.trial_since = 0.0
        self._queue_bytes = self._port.queue_bytes

    def _review(self) -> None:
        """A peer that is answered all the same, as on /healthz, may go on asking."""
        if self._served != self.session.requests_served:
            self._served = self.session.requests_served
            self.trial_since = self.trial_since and self.touched_at
        self._port.review(self)

    def _end_turn(self) -> None:
        """The loop would read from this connection again and again; others come first, and those it wrote to."""
        if not self._transport.is_closing():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        if not self._port.budget.has_paused(self):
            self.resume_reading()

    def eof_received(self) -> bool:
        """The peer will say no more. What is due to it is still sent, and what it waits for is waited for."""
        self.touched_at, now = time.monotonic(), time.time()
        if not self.closing and not self.heard_out and (events := self.session.end(self._inbox.rest(), now)):
            self._port.received(self, events, now)
        self.heard_out = True
        if not self.closing and not self._port.owes(self):
            self.leave()
        return not self.closing and not self._secure  # TLS has no half that could stay open

    def upgrade(self, dialect: str, session: Session) -> None:
        """From here on this connection speaks another dialect, and is counted there."""
        self.flush()
        self._port.counters.open -= 1
        self._port = self._port.speaking(dialect)
        self._port.counters.open += 1
        self._port.counters.accepted += 1
        self.session = session

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc and not self.closing:
            self.parting = ("lost", str(exc))
        self.closing = True
        self._report_drops()
        self._pending.clear()
        self._drop_input()
        self._port.closed(self)

    # -- writing -----------------------------------------------------------------------------------------

    def push(self, blocks: Iterable[Buffer], size: int, messages: int) -> None:
        """Takes blocks for the next flush."""
        if not messages:
            self._replies += blocks
        elif self.spilled:
            return
        self._pending += blocks
        self._pending_bytes += size
        self._pending_messages += messages

    def feed(self, encoded: Encoded, messages: int) -> None:
        """Messages from the log. They go out at once: whoever brings them waits for room."""
        self.flush()
        if self.closing:
            return
        self.push(encoded.blocks, 0, 0)
        self._pending_bytes, self._pending_messages = encoded.size, messages
        self._port.counters.lossy += encoded.lossy
        self._hold(self.session.withheld_bytes)
        self._write()
        self._clear()

    def flush(self) -> None:
        held = self.session.withheld_bytes
        if held or self._holding:
            self._hold(held)
        elif not self._pending:
            return
        queued = self.unsent() + held
        limit = self._spill_limit if self.spilled else self._queue_bytes
        fits = not queued or queued + self._pending_bytes <= limit
        if self.closing:
            pass
        elif fits:
            self._write()
        elif self._port.policy == "spill" and not self.spilled and self._pending_messages:
            self._spill()
        elif self._port.policy == "drop" and not held:
            self._drop(queued)
        else:
            self._disconnect_slow(queued)
        self._clear()

    def _clear(self) -> None:
        self._pending = []
        self._replies = []
        self._pending_bytes = self._pending_messages = 0

    def queued(self) -> int:
        """What waits to be sent, or to be allowed to be sent."""
        return self.unsent() + self.session.withheld_bytes

    def unsent(self) -> int:
        """What waits for nothing but the peer to read it."""
        return self._transport.get_write_buffer_size()

    def undelivered(self) -> int:
        """What has not come as far as the peer's system."""
        return self.unsent() + sockets.unacknowledged(self._transport.get_extra_info("socket"))

    def is_delivered(self) -> bool:
        """Whether the peer's system has everything. Below TLS nobody can tell before it has ended."""
        return not self._secure and not self.undelivered()

    def pause_writing(self) -> None:
        self._choked = True
        self._port.budget.fell_behind(self)

    def resume_writing(self) -> None:
        self._choked = False
        if not self._holding:
            self._port.budget.caught_up(self)
        self._report_drops()

    def _hold(self, held: int) -> None:
        """What a session keeps back for its peer waits like anything else, and counts like it."""
        self._holding = held > 0
        if held:
            self._port.budget.fell_behind(self)
        elif not self._choked:
            self._port.budget.caught_up(self)

    def _write(self) -> None:
        self._report_drops()
        if not self._pending:
            return
        self._transport.writelines(self._pending)
        counters = self._port.counters
        counters.messages_out += self._pending_messages
        self.messages_out += self._pending_messages
        counters.bytes_out += self._pending_bytes
        self.bytes_out += self._pending_bytes
        self.touched_at = time.monotonic()

    def _spill(self) -> None:
        """This is the last that it gets as it comes; whatever follows it gets from the log."""
        self._write()
        self.turn_to_log()
        self._port.spill(self)

    def turn_to_log(self) -> None:
        """From here on it gets nothing that is live."""
        self.spilled = True
        self._spill_limit = self.queued() + self._port.queue_bytes

    def _drop(self, queued: int) -> None:
        """Messages go, answers stay: whoever asked would wait for them in vain."""
        answers = sum(map(len, self._replies))
        if queued + answers > ANSWERS_SHARE * self._queue_bytes:
            self._disconnect_slow(queued)
            return
        if answers:
            self._transport.writelines(self._replies)
            self._port.counters.bytes_out += answers
            self.bytes_out += answers
        self._port.counters.dropped += self._pending_messages
        self._port.dropped(self, self._pending_messages, self._pending_bytes - answers)
        self._dropped += self._pending_messages
        if not self._dropping:
            self._dropping = True
            log.warning(
                "%s: dropping what is new for it: %s bytes wait to be sent, the limit is %s "
                "(limits.queue_bytes)", self, f"{queued:,}", f"{self._port.queue_bytes:,}",
            )  # fmt: skip

    def _report_drops(self) -> None:
        if self._dropping:
            self._dropping = False
            log.warning("%s: dropped %s messages", self, f"{self._dropped:,}")
            self._dropped = 0

    # -- ending ------------------------------------------------------------------------------------------

    def _disconnect_slow(self, queued: int) -> None:
        lost = f"{self._pending_messages:,} new messages" if self._pending_messages else "an answer"
        setting = "without rights" if self.trial_since else "limits.queue_bytes"
        limit = f"{self._queue_bytes:,} ({setting})"
        self.end("slow", f"too slow: {queued:,} bytes wait to be sent, with {lost} past the limit of {limit}")
        self._transport.abort()

    def fail(self, error: PeerError) -> None:
        """The peer did what it must not do. What is due to it is still sent, and what it did wrong.

        Closing at once while it still sends would reset the connection, and the last words could be lost with it:
        we end our side, and wait for the peer to end its own.
        """
        words = self._say_farewell(error)
        self.end(error.kind, str(error))
        if words and self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _say_farewell(self, error: PeerError | None) -> bytes:
        words = b"" if self.closing else self.session.closing_bytes(error)
        if words:
            self.push((words,), len(words), 0)
        self.flush()
        return words

    def dismiss(self, reason: str) -> None:
        """Somebody who may wants it gone. What is due to it is still sent, and that it is over."""
        if not self.closing:
            self._say_farewell(None)
            self.end("dismissed", reason)
            self._transport.close()

    def leave(self) -> None:
        """Nobody's fault. What is due is still sent."""
        self.flush()
        self.closing = True
        self._drop_input()
        self._port.ending(self)
        self._transport.close()

    def end(self, kind: str, reason: str) -> None:
        """Says why, once; the transport is the caller's."""
        if not self.closing:
            self.closing = True
            self._drop_input()
            self.parting = (kind, reason)
            closed = self._port.counters.closed
            closed[kind] += 1
            worth = closed[kind] <= DETAILS_AT_MOST or not self.guard.restricted
            log.log(logging.WARNING if worth else logging.DEBUG, "%s: closed: %s", self, reason)
            self._port.ending(self)

    def finish(self) -> None:
        """Send what waits, then say goodbye; input is not looked at any more."""
        self._say_farewell(None)
        self.closing = True
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def discard(self) -> None:
        """It never came up. uvloop may forget to say so when the peer resets at the wrong moment."""
        self.closing = True
        self._port.closed(self)

    def abort(self) -> None:
        self.closing = True
        self._transport.abort()

    def stalled_since(self, now: float) -> float:
        """For how many seconds the peer has taken nothing of what waits for it."""
        queued = self.unsent()
        sent = self.bytes_out - self.undelivered()
        if sent != self._sent_before[0] or not queued:
            self._sent_before = (sent, now)
        return now - self._sent_before[1]


def _peer_of(transport: asyncio.BaseTransport) -> Any:
    """A host and a port; None: a file of this machine; empty: it has left already."""
    try:
        peer = transport.get_extra_info("peername")
    except OSError:
        return ""
    return peer if isinstance(peer, tuple) else None
