"""One connection, for every dialect: asyncio's callbacks, rights, and the lifecycle.

Reading: `get_buffer` and `buffer_updated` (asyncio's BufferedProtocol) pass blocks to the session, and its events
to the dispatcher. Writing: see `SendQueue`. The end: every way to close a connection is an event in `TRANSITIONS`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

from polycast.dialects.contract import Role
from polycast.dialects.guard import Guard
from polycast.dialects.session import Session
from polycast.errors import ForbiddenError, PeerError
from polycast.model import Block, Event
from polycast.routing import Subscriber
from polycast.server.io import sockets
from polycast.server.io.address_groups import address_group_of
from polycast.server.io.connection_state import ConnectionEvent, ConnectionState
from polycast.server.io.partial_frames import COUNTED_BYTES, PartialFrames
from polycast.server.io.read_scheduler import ReadScheduler
from polycast.server.io.receive_buffer import (
    ANONYMOUS_READ_BYTES,
    UNAUTHORIZED_READ_BYTES,
    ReceiveBuffer,
)
from polycast.server.io.send_queue import QueueListener, SendQueue

log = logging.getLogger("polycast.connection")

TURN_SECONDS = 0.002
"""A read that takes longer to handle ends the connection's turn: other connections are read first."""
DETAILS_AT_MOST = 1000
"""How many closed connections with limited rights are logged for each reason; the rest are only counted."""
OPEN, INPUT_ENDED = ConnectionState.OPEN, ConnectionState.INPUT_ENDED
CLOSING, CLOSED = ConnectionState.CLOSING, ConnectionState.CLOSED


class ConnectionListener(QueueListener, Protocol):
    """What the connections of one listener share, and what they report to the broker."""

    role: Role
    replay: str
    """`last`: a new subscription starts with the last message of each topic; empty: with new messages."""
    unauthorized_bytes: int
    """The limit, in either direction, of what is buffered for a peer without rights."""
    partial_frames: PartialFrames
    read_scheduler: ReadScheduler

    opened: Callable[[Connection], bool]
    received: Callable[[Connection, list[Event], float], None]
    awaits_reply: Callable[[Connection], bool]
    """Whether an ack or a response is outstanding."""
    leave: Callable[[Connection], None]
    """Remove the connection's subscriptions; its output may still be in flight."""
    review: Callable[[Connection], None]
    """The rights of the connection may have changed."""
    closed: Callable[[Connection], None]

    def admit(self, peer: Any, certificate: Any) -> Guard:
        """Identify a peer by its socket address and TLS certificate."""
        ...

    def speaking(self, dialect: str) -> ConnectionListener:
        """The same listener, for connections that were upgraded to another dialect."""
        ...


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_partial_counted",
        "_receive_buffer",
        "_secure",
        "_served",
        "_transport",
        "_turn_seconds",
        "_untrusted",
        "address_group",
        "close_reason",
        "dialed",
        "guard",
        "listener",
        "messages_in",
        "name",
        "opened_at",
        "queue",
        "session",
        "state",
        "subscriber",
        "touched_at",
        "unauthorized_since",
    )

    def __init__(
        self,
        listener: ConnectionListener,
        session: Session,
        receive_buffer: ReceiveBuffer,
        name: str,
        dialed: bool = False,
    ) -> None:
        self.listener = listener
        self.session = session
        self.name = name
        self.dialed = dialed
        self.state = OPEN
        self.subscriber: Subscriber
        self.guard = session.guard
        self.messages_in = 0
        self.close_reason = ("left", "")
        """The kind that is counted, and a text for the log."""
        self.opened_at = self.touched_at = time.monotonic()
        self.address_group = ""
        self.unauthorized_since = 0.0
        """Since when the peer could have shown a token with rights, and has not; 0: it has rights."""
        self.queue = SendQueue(self, listener, session)
        self._receive_buffer = receive_buffer
        self._served = 0
        """The session's `requests_served` at the last review."""
        self._partial_counted = False
        """Whether `partial_frames` counts a frame of this connection."""
        self._untrusted = False
        """Whether the peer has no rights, or no known identity."""
        self._turn_seconds = 0.0
        """The time that an untrusted peer has used of its turn."""
        self._transport: asyncio.Transport
        self._secure = False

    def __str__(self) -> str:
        return f"{self.listener.role.listener} {self.name}"

    @property
    def closing(self) -> bool:
        return self.state is CLOSING or self.state is CLOSED

    @property
    def input_ended(self) -> bool:
        return self.state is INPUT_ENDED

    # -- reading -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.queue.open(self._transport)
        peer = _peer_of(transport)
        self.name += f" {peer[0]}:{peer[1]}" if peer else " (ipc)" if peer is None else " (gone)"
        self.address_group = address_group_of(peer[0] if peer else None)
        self._secure = transport.get_extra_info("ssl_object") is not None
        self.guard = self.session.guard = self.listener.admit(peer, transport.get_extra_info("peercert"))
        if not self.listener.opened(self):
            self._apply(ConnectionEvent.REJECT)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receive_buffer.room()

    def buffer_updated(self, count: int) -> None:
        if self.state is not OPEN:
            return
        began = self.touched_at = time.monotonic()
        self.listener.counters.bytes_in += count
        block = self._receive_buffer.take(count)
        if block is None:
            if self._receive_buffer.is_full:
                self._count_partial(False)
            return
        self._handle(block, began)

    def _handle(self, block: Block, began: float) -> None:
        now = time.time()
        received = self.session.receive(block, now)
        self._receive_buffer.keep(block, received.consumed, received.frame_bytes, received.frame_end)
        if self._untrusted or self.guard.has_no_rights:
            self._review()
        if received.events:
            self.listener.received(self, received.events, now)
        buffered = self.session.buffered_bytes
        if self._partial_counted or self._receive_buffer.held > COUNTED_BYTES or buffered > COUNTED_BYTES:
            self._count_partial(received.consumed > 0 and not buffered)
        taken = time.monotonic() - began
        self._receive_buffer.adapt(taken, bool(self.listener.budget.behind))
        if self._untrusted:
            self._count_turn(taken)
        elif taken > TURN_SECONDS or self._receive_buffer.reads_much or self.listener.budget.behind:
            self._end_turn()

    def continue_input(self) -> None:
        """Handle the input that waited for the response to an earlier request."""
        if self.closing:
            return
        ended = self.input_ended
        if ended:
            self.resume_input()
        self._handle(self._receive_buffer.rest(), time.monotonic())
        if ended:
            self.eof_received()

    def _count_partial(self, begins: bool) -> None:
        """Count the bytes of an incomplete frame. A peer may not buffer a frame that it may not publish."""
        buffered = self.session.buffered_bytes
        held = self._receive_buffer.held + buffered
        frames = self.listener.partial_frames
        self._partial_counted = held > COUNTED_BYTES and not self.closing
        if not self._partial_counted:
            frames.forget(self)
        elif self.guard.restricted and self._is_forbidden_to_hold():
            self.fail(ForbiddenError())
        else:
            frames.note(self, held, self._receive_buffer.wanted + buffered, self.touched_at, begins)

    def _is_forbidden_to_hold(self) -> bool:
        if self.guard.has_no_rights:
            too_long = self._receive_buffer.expected > self.listener.unauthorized_bytes
            return too_long or self.listener.partial_frames.is_full
        topic = self.session.begun_topic(self._receive_buffer.head(COUNTED_BYTES))
        if topic is None or self.guard.may_publish(topic):
            return False
        self.log_denial("publish to", topic.decode(errors="replace"))
        return True

    def partial_bytes(self) -> int:
        """The bytes received of an incomplete frame."""
        return self._receive_buffer.filled + self.session.buffered_bytes

    def _end_turn(self) -> None:
        """The loop would read from this connection again and again; let it serve the others first."""
        if not self._transport.is_closing():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.begin_turn)

    def _count_turn(self, taken: float) -> None:
        self._turn_seconds += taken
        if self._turn_seconds > TURN_SECONDS and not self._transport.is_closing():
            self._turn_seconds = 0.0
            self._transport.pause_reading()
            self.listener.read_scheduler.add(self)

    def begin_turn(self) -> None:
        if not self.listener.budget.has_paused(self):
            self.resume_reading()

    def eof_received(self) -> bool:
        """The peer half-closed. Outstanding acks and responses are still sent."""
        self.touched_at, now = time.monotonic(), time.time()
        if self.state is OPEN and (events := self.session.end(self._receive_buffer.rest(), now)):
            self.listener.received(self, events, now)
        self.end_input()
        if self.input_ended and not self.listener.awaits_reply(self):
            self.close()
        return self.input_ended and not self._secure  # TLS cannot be half-closed

    def end_input(self) -> None:
        self._apply(ConnectionEvent.END_INPUT)

    def resume_input(self) -> None:
        self._apply(ConnectionEvent.RESUME_INPUT)

    def upgrade(self, dialect: str, session: Session) -> None:
        """Continue in another dialect."""
        self.queue.flush()
        self.listener.counters.open -= 1
        self.listener = self.listener.speaking(dialect)
        self.listener.counters.open += 1
        self.listener.counters.accepted += 1
        self.session = session
        self.queue.attach(self.listener, session)

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # -- writing -----------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self.queue.pause_writing()

    def resume_writing(self) -> None:
        self.queue.resume_writing()

    def queued(self) -> int:
        return self.queue.queued()

    def is_delivered(self) -> bool:
        """Whether the peer's system has received everything. With TLS this is unknown until the end."""
        return not self._secure and not self.queue.undelivered()

    # -- rights ------------------------------------------------------------------------------------------

    def log_denial(self, action: str, target: str) -> None:
        """The caller closes the connection."""
        worth = self.listener.counters.closed[ForbiddenError.kind] < DETAILS_AT_MOST
        log.log(logging.INFO if worth else logging.DEBUG, "%s: %s", self, self.guard.denial_text(action, target))

    def mark_unauthorized(self) -> None:
        """The peer has no rights yet: it may show a token within `limits.handshake_seconds`."""
        self.unauthorized_since = time.monotonic()
        self.queue.limit, self.queue.limit_name = self.listener.unauthorized_bytes, "without rights"
        self._untrusted = True
        self._receive_buffer.limit_reads(UNAUTHORIZED_READ_BYTES, UNAUTHORIZED_READ_BYTES)
        if self._secure:
            sockets.limit_read_ahead(self._transport)

    def mark_authorized(self) -> None:
        self.unauthorized_since = 0.0
        self.queue.limit, self.queue.limit_name = self.listener.queue_bytes, "limits.queue_bytes"
        self._untrusted = not self.guard.known
        if self._untrusted:
            self._receive_buffer.limit_reads(ANONYMOUS_READ_BYTES, UNAUTHORIZED_READ_BYTES)
        else:
            self._receive_buffer.allow_reads()
        if self._secure and not self.dialed:
            sockets.restore_receive_buffers(self._transport)

    def _review(self) -> None:
        """Requests that need no rights, as for /healthz, extend the time to show a token."""
        if self._served != self.session.requests_served:
            self._served = self.session.requests_served
            self.unauthorized_since = self.unauthorized_since and self.touched_at
        self.listener.review(self)

    # -- ending ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, then close. Nothing is counted or logged."""
        self.queue.flush()
        self._apply(ConnectionEvent.CLOSE)

    def close_gracefully(self, reason: str) -> None:
        """Administrative close: send the dialect's closing bytes, flush, then close."""
        self._send_closing_bytes(None)
        self._report_close("dismissed", reason)
        self._apply(ConnectionEvent.CLOSE)

    def fail(self, error: PeerError) -> None:
        """Protocol error of the peer: send the error, flush, then close.

        Closing at once while the peer still sends would reset the connection, and the peer might never read the
        error. So the broker half-closes, and waits for the peer to close.
        """
        sent = self._send_closing_bytes(error)
        self._report_close(error.kind, str(error))
        self._apply(ConnectionEvent.HALF_CLOSE if sent else ConnectionEvent.CLOSE)

    def shut_down(self) -> None:
        """The broker stops: send the dialect's closing bytes, flush, and wait for the peer to close."""
        self._send_closing_bytes(None)
        self._apply(ConnectionEvent.SHUT_DOWN)

    def disconnect(self, kind: str, reason: str) -> None:
        """Close at once, and discard the queue."""
        self._report_close(kind, reason)
        self._apply(ConnectionEvent.DISCONNECT)

    def abort(self) -> None:
        self._apply(ConnectionEvent.ABORT)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc and not self.closing:
            self.close_reason = ("lost", str(exc))
        self._apply(ConnectionEvent.LOSE)

    def _send_closing_bytes(self, error: PeerError | None) -> bool:
        data = b"" if self.closing else self.session.closing_bytes(error)
        if data:
            self.queue.push((data,), len(data), 0)
        self.queue.flush()
        return bool(data)

    def _report_close(self, kind: str, reason: str) -> None:
        """Only the first reason counts."""
        if self.closing:
            return
        self.close_reason = (kind, reason)
        closed = self.listener.counters.closed
        closed[kind] += 1
        worth = closed[kind] <= DETAILS_AT_MOST or not self.guard.restricted
        log.log(logging.WARNING if worth else logging.DEBUG, "%s: closed: %s", self, reason)

    def _apply(self, event: ConnectionEvent) -> None:
        action, self.state = TRANSITIONS[self.state, event]
        action(self)

    # -- actions -----------------------------------------------------------------------------------------

    def _ignore(self) -> None:
        pass

    def _leave(self) -> None:
        self._drop_input()
        self.listener.leave(self)

    def _leave_and_close(self) -> None:
        self._leave()
        self._transport.close()

    def _leave_and_half_close(self) -> None:
        self._leave()
        self._half_close()

    def _leave_and_abort(self) -> None:
        self._leave()
        self._transport.abort()

    def _half_close(self) -> None:
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _close_transport(self) -> None:
        self._transport.close()

    def _abort_transport(self) -> None:
        self._transport.abort()

    def _release(self) -> None:
        self.queue.close()
        self._drop_input()
        self.listener.closed(self)

    def _drop_input(self) -> None:
        self._receive_buffer.drop()
        self.listener.partial_frames.forget(self)


Action = Callable[[Connection], None]
TRANSITIONS: dict[tuple[ConnectionState, ConnectionEvent], tuple[Action, ConnectionState]] = {
    (OPEN, ConnectionEvent.END_INPUT): (Connection._ignore, INPUT_ENDED),
    (OPEN, ConnectionEvent.REJECT): (Connection._abort_transport, CLOSING),
    (OPEN, ConnectionEvent.CLOSE): (Connection._leave_and_close, CLOSING),
    (OPEN, ConnectionEvent.HALF_CLOSE): (Connection._leave_and_half_close, CLOSING),
    (OPEN, ConnectionEvent.SHUT_DOWN): (Connection._half_close, CLOSING),
    (OPEN, ConnectionEvent.DISCONNECT): (Connection._leave_and_abort, CLOSING),
    (OPEN, ConnectionEvent.ABORT): (Connection._abort_transport, CLOSING),
    (OPEN, ConnectionEvent.LOSE): (Connection._release, CLOSED),
    (INPUT_ENDED, ConnectionEvent.END_INPUT): (Connection._ignore, INPUT_ENDED),
    (INPUT_ENDED, ConnectionEvent.RESUME_INPUT): (Connection._ignore, OPEN),
    (INPUT_ENDED, ConnectionEvent.CLOSE): (Connection._leave_and_close, CLOSING),
    (INPUT_ENDED, ConnectionEvent.HALF_CLOSE): (Connection._leave_and_half_close, CLOSING),
    (INPUT_ENDED, ConnectionEvent.SHUT_DOWN): (Connection._half_close, CLOSING),
    (INPUT_ENDED, ConnectionEvent.DISCONNECT): (Connection._leave_and_abort, CLOSING),
    (INPUT_ENDED, ConnectionEvent.ABORT): (Connection._abort_transport, CLOSING),
    (INPUT_ENDED, ConnectionEvent.LOSE): (Connection._release, CLOSED),
    (CLOSING, ConnectionEvent.END_INPUT): (Connection._ignore, CLOSING),
    (CLOSING, ConnectionEvent.CLOSE): (Connection._close_transport, CLOSING),
    (CLOSING, ConnectionEvent.HALF_CLOSE): (Connection._ignore, CLOSING),
    (CLOSING, ConnectionEvent.SHUT_DOWN): (Connection._ignore, CLOSING),
    (CLOSING, ConnectionEvent.DISCONNECT): (Connection._abort_transport, CLOSING),
    (CLOSING, ConnectionEvent.ABORT): (Connection._abort_transport, CLOSING),
    (CLOSING, ConnectionEvent.LOSE): (Connection._release, CLOSED),
    (CLOSED, ConnectionEvent.END_INPUT): (Connection._ignore, CLOSED),
    (CLOSED, ConnectionEvent.CLOSE): (Connection._ignore, CLOSED),
    (CLOSED, ConnectionEvent.HALF_CLOSE): (Connection._ignore, CLOSED),
    (CLOSED, ConnectionEvent.SHUT_DOWN): (Connection._ignore, CLOSED),
    (CLOSED, ConnectionEvent.DISCONNECT): (Connection._ignore, CLOSED),
    (CLOSED, ConnectionEvent.ABORT): (Connection._ignore, CLOSED),
    (CLOSED, ConnectionEvent.LOSE): (Connection._ignore, CLOSED),
}
"""A missing key is a programming error: only an open connection is rejected, only ended input is resumed."""


def _peer_of(transport: asyncio.BaseTransport) -> Any:
    """Host and port; None: a Unix socket; empty: the peer has disconnected already."""
    try:
        peer = transport.get_extra_info("peername")
    except OSError:
        return ""
    return peer if isinstance(peer, tuple) else None
