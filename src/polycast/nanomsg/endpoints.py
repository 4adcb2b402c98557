"""Endpoints: addresses that a socket is bound to, or dials. Both create pipes."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

from polycast import socket_files
from polycast.address import Address
from polycast.dialects.session import Session, SessionContext
from polycast.nanomsg import inproc
from polycast.nanomsg.pipe import Pipe
from polycast.nanomsg.sessions import (
    Kind,
    to_dialling_session,
    to_encoder,
    to_listening_session,
    to_session_context,
)
from polycast.nanomsg.socket_core import Endpoint, SocketCore

log = logging.getLogger("polycast.nanomsg")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
DIAL_SECONDS = 5.0


class PipeEndpoint(Endpoint):
    def __init__(self, core: SocketCore, address: Address, url: str) -> None:
        self._core = core
        self._address = address
        self._url = url

    def to_pipe(
        self, to_session: Callable[[Kind, SessionContext], Session], scheme: str, dialed: Address | None = None
    ) -> Pipe:
        context = to_session_context(scheme, self._core.options.message_bytes, dialed)
        return Pipe(self._core, to_session(self._core.kind, context), to_encoder(context), self._url)

    async def join(self, connected: socket.socket) -> Pipe:
        """One side of an inproc pair. Its session is that of tcp."""
        pipe = self.to_pipe(to_dialling_session, "tcp")
        await asyncio.get_running_loop().create_unix_connection(lambda: pipe, sock=connected)
        return pipe


class SocketListener(PipeEndpoint):
    def __init__(self, core: SocketCore, address: Address, url: str, listening: socket.socket) -> None:
        super().__init__(core, address, url)
        self._listening = listening
        self._file = socket_files.identity(Path(address.path)) if address.scheme == "ipc" else None

    async def open(self) -> None:
        loop, scheme = asyncio.get_running_loop(), self._address.scheme
        start = loop.create_unix_server if scheme == "ipc" else loop.create_server
        self._server = await start(lambda: self.to_pipe(to_listening_session, scheme), sock=self._listening)

    async def close(self) -> None:
        """Removes the file first: a file that appears later belongs to another listener."""
        if self._file:
            socket_files.remove(Path(self._address.path), self._file)
        self._server.close()


class InprocListener(PipeEndpoint):
    async def open(self) -> None:
        inproc.bind(self._address.path, self.join)

    async def close(self) -> None:
        inproc.unbind(self._address.path)


class Dialer(PipeEndpoint):
    """Dials until it is closed: again after a failure, and after the end of each pipe."""

    async def open(self) -> None:
        self._task = asyncio.create_task(self._keep_dialling())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_dialling(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            started = time.monotonic()
            if pipe := await self._dial():
                await pipe.ended
            if time.monotonic() - started > DIAL_SECONDS + LONGEST_WAIT_SECONDS:
                wait = FIRST_WAIT_SECONDS
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    async def _dial(self) -> Pipe | None:
        scheme = self._address.scheme
        if scheme == "inproc":
            return await self.join(await inproc.dial(self._address.path))
        pipe = self.to_pipe(to_dialling_session, scheme, self._address)
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._open_connection(pipe)
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            log.info("%s: %s; dialling again", self._url, error)
            pipe.discard()
            return None
        return pipe

    async def _open_connection(self, pipe: Pipe) -> None:
        loop, address = asyncio.get_running_loop(), self._address
        if address.scheme == "ipc":
            await loop.create_unix_connection(lambda: pipe, address.path)
        else:
            await loop.create_connection(lambda: pipe, address.host, address.port)
