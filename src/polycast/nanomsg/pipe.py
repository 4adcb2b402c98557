"""A pipe: one connection between two sockets. Bytes go to its session, messages to its owner."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol, cast

from polycast.dialects.session import Session
from polycast.errors import PeerError, TimeoutPeerError
from polycast.model import Burst, Closing, Encoded, Encoder, Event, Reply, Upgrade
from polycast.nanomsg.addresses import keep_alive
from polycast.nanomsg.sessions import with_limit_argument

log = logging.getLogger("polycast.nanomsg")

HEADER_SECONDS = 10.0
"""How long a peer may take for the handshake."""
FLUSH_SECONDS = 1.0
"""How long a disconnected peer may take to read what was sent before."""


class PipeOwner(Protocol):
    closed: bool

    def add_pipe(self, pipe: Pipe) -> None: ...
    def add_peer(self, pipe: Pipe) -> None: ...
    def remove_peer(self, pipe: Pipe) -> None: ...
    def remove_pipe(self, pipe: Pipe) -> None: ...
    def handle_burst(self, pipe: Pipe, burst: Burst) -> None: ...


class Pipe(asyncio.Protocol):
    def __init__(self, owner: PipeOwner, session: Session, encoder: Encoder, name: str) -> None:
        self.encoder = encoder
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._session = with_limit_argument(session)
        self._name = name
        self._rest = bytearray()
        self._frame_bytes = 0
        self._is_up = False
        self._closing = False
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    # -- transport ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.add_pipe(self)
        if self._owner.closed:
            self.abort()
            return
        keep_alive(transport.get_extra_info("socket"))
        late = TimeoutPeerError(f"no SP header within {HEADER_SECONDS:g} s")
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._fail, late)
        self._handle(self._session.open())

    def data_received(self, data: bytes) -> None:
        if self._rest:
            self._rest += data
            if len(self._rest) < self._frame_bytes:
                return
            data = bytes(self._rest)
        session: Session | None = None
        while session is not self._session and not self._closing:  # an upgrade's new session reads the rest
            session = self._session
            received = session.receive(data, time.time())
            data, self._frame_bytes = data[received.consumed :], received.frame_bytes
            self._handle(received.events)
        self._rest = bytearray(data)

    def eof_received(self) -> None:
        self._disconnect()

    def connection_lost(self, error: Exception | None) -> None:
        self._disconnect()
        self.discard()

    def discard(self) -> None:
        """The pipe ended or never started: uvloop may miss that when the peer resets at the wrong moment."""
        self._stop_timer()
        self._owner.remove_pipe(self)
        if not self.ended.done():
            self.ended.set_result(None)

    # -- events of the session --------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Reply):
                self._transport.write(event.data)
            elif isinstance(event, Upgrade):
                self._session = with_limit_argument(event.session)
            elif isinstance(event, Closing):
                self._fail(event.error)
            elif isinstance(event, Burst):
                self._check_handshake()
                self._owner.handle_burst(self, event)
        self._check_handshake()

    def _check_handshake(self) -> None:
        if not self._is_up and self._session.handshake_done and not self._closing:
            self._is_up = True
            self._stop_timer()
            self._owner.add_peer(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _fail(self, error: PeerError | None) -> None:
        if error is not None:
            log.warning("%s: closed: %s", self._name, error)
            self._write(self._session.closing_bytes(error))
        self._disconnect()
        self._transport.close()
        self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.abort)

    def _disconnect(self) -> None:
        """Ignores all further input and output."""
        self._closing = True
        self._stop_timer()
        self._owner.remove_peer(self)

    # -- calls of the owner -----------------------------------------------------------------------------

    def write(self, encoded: Encoded, queue_bytes: int) -> bool:
        """Whether the queue had room."""
        queued = self._transport.get_write_buffer_size()
        if queued and queued + encoded.size > queue_bytes:
            return False
        self._transport.writelines(encoded.blocks)
        return True

    def pause(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def finish(self) -> None:
        """Flushes, then closes."""
        self._closing = True
        self._write(self._session.closing_bytes(None))
        self._transport.close()

    def _write(self, data: bytes) -> None:
        """Writes unless the connection is lost, where uvloop would raise."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        self._transport.abort()
