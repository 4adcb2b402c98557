"""A pipe: one connection between two sockets, whoever dialled. Bytes go to its session, messages to its end."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import cast

from polycast.dialects.session import Session
from polycast.errors import PeerError, TimeoutPeerError
from polycast.model import Burst, Closing, Encoded, Encoder, Event, Reply, Upgrade
from polycast.nanomsg.end import End
from polycast.nanomsg.places import keep_alive
from polycast.nanomsg.sessions import with_argument

log = logging.getLogger("polycast.nanomsg")

HEADER_SECONDS = 10.0
"""How long a peer may take to introduce itself."""
FAREWELL_SECONDS = 1.0
"""How long a peer that is disconnected may take to read what was sent before."""


class Pipe(asyncio.Protocol):
    def __init__(self, end: End, session: Session, encoder: Encoder, name: str) -> None:
        self.encoder = encoder
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._end = end
        self._session = with_argument(session)
        self._name = name
        self._rest = bytearray()
        self._need = 0
        self._is_up = False
        self._closing = False
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    # -- what the transport says -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._end.opened(self)
        if self._end.closed:
            self.abort()
            return
        keep_alive(transport.get_extra_info("socket"))
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._give_up)
        self._handle(self._session.open())

    def data_received(self, data: bytes) -> None:
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return
            data = bytes(self._rest)
        session: Session | None = None
        while session is not self._session and not self._closing:  # a session that comes anew takes over the rest
            session = self._session
            received = session.receive(data, time.time())
            data, self._need = data[received.consumed :], received.frame_bytes
            self._handle(received.events)
        self._rest = bytearray(data)

    def eof_received(self) -> None:
        self._part()

    def connection_lost(self, error: Exception | None) -> None:
        self._part()
        self.discard()

    def discard(self) -> None:
        """It ended, or never began: uvloop may forget to say so when the peer resets at the wrong moment."""
        self._stop_timer()
        self._end.left(self)
        if not self.ended.done():
            self.ended.set_result(None)

    # -- what the session says ---------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Reply):
                self._transport.write(event.data)
            elif isinstance(event, Upgrade):
                self._session = with_argument(event.session)
            elif isinstance(event, Closing):
                self._fail(event.error)
            elif isinstance(event, Burst):
                self._greet()
                self._end.received(self, event)
        self._greet()

    def _greet(self) -> None:
        if not self._is_up and self._session.handshake_done and not self._closing:
            self._is_up = True
            self._stop_timer()
            self._end.joined(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        self._fail(TimeoutPeerError(f"no SP header within {HEADER_SECONDS:g} s"))

    def _fail(self, error: PeerError | None) -> None:
        if error is not None:
            log.warning("%s: closed: %s", self._name, error)
            self._say(self._session.closing_bytes(error))
        self._part()
        self._transport.close()
        self._timer = asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self.abort)

    def _part(self) -> None:
        """Nothing that comes or is sent from here on is looked at."""
        self._closing = True
        self._stop_timer()
        self._end.parted(self)

    # -- what the end says -------------------------------------------------------------------------------

    def write(self, encoded: Encoded, queue_bytes: int) -> bool:
        """Whether there was room for it."""
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
        """What waits is still sent."""
        self._closing = True
        self._say(self._session.closing_bytes(None))
        self._transport.close()

    def _say(self, words: bytes) -> None:
        """Unless the connection is lost already, which uvloop answers with an error."""
        if words and not self._transport.is_closing():
            self._transport.write(words)

    def abort(self) -> None:
        self._transport.abort()
