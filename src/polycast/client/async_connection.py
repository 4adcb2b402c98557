"""A connection of the asyncio client: a stream around a client session. For any number of tasks of one loop.

A task that waits for something reads, one task at a time, on behalf of all tasks. While no task waits, nothing is
read, so unread messages stay with the broker (backpressure).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from polycast.client.credentials import to_context
from polycast.client.failures import (
    ACK_SECONDS,
    NOTICE_SECONDS,
    READ_BYTES,
    closed,
    lost,
    no_message,
    silent,
    to_seconds,
    unreachable,
)
from polycast.client.handling import AsyncHandling
from polycast.dialects.client_requests import NO_BODY, Response
from polycast.dialects.client_session import ClientSession, Command
from polycast.errors import RemoteError, ReplyTimeoutError
from polycast.model import Body, Message


class AsyncConnection:
    """One connection, from the handshake to its end."""

    def __init__(
        self, session: ClientSession, stream: StreamProtocol, writer: asyncio.StreamWriter, timeout: float
    ) -> None:
        """Use `open`, which dials and does the handshake."""
        self.address = session.address
        self.session = session
        self._handling = AsyncHandling(session, self._send_late)
        self._stream = stream
        self._reader = stream.reader
        self._writer = writer
        self._timeout = timeout
        self._reading = asyncio.Lock()
        self._ended = False
        self._closed = False

    @classmethod
    async def open(cls, session: ClientSession, timeout: float = 10.0) -> AsyncConnection:
        """`timeout` is for the connection, the handshake, and replies that a broker sends at once."""
        seconds = to_seconds(timeout)
        connection = cls(session, *await _open(session, seconds), seconds)
        try:
            await connection.run(session.open())
        except BaseException:
            connection._writer.transport.abort()
            raise
        return connection

    async def receive(self, seconds: float | None) -> list[Message]:
        """The messages that have arrived, or arrive next; none if the connection is closed in good order."""
        session = self.session
        try:
            await self.wait(lambda: bool(session.messages) or self._ended or self._closed, seconds)
        except ReplyTimeoutError as error:
            raise no_message(session, seconds or 0) from error
        except RemoteError:
            if not self._closed:
                raise
        if self._closed:
            return []
        if not session.messages:
            session.check_end()
        return session.take()

    async def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Response:
        """The response; `success` is false if the request failed."""
        seconds, responses = to_seconds(timeout), self.session.responses
        data, number = self.session.to_request(route, body)
        try:
            await self.send(data)
            await self.wait(lambda: responses[number] is not None, seconds)
        finally:
            response = responses.pop(number)
        assert response is not None
        return response

    async def close(self) -> None:
        """Closes the sending direction and waits for the broker to close, which it does when it has read
        everything.

        Ends the loops over `messages` in other tasks. A second call has no effect.
        """
        if self._closed:
            return
        self._closed = True
        await self._handling.cancel()
        try:
            if self.session.unacknowledged:
                await self._check_early_end()
            async with asyncio.timeout(ACK_SECONDS if self.session.unacknowledged else self._timeout):
                await self._shut_down()
        except OSError as error:
            self._writer.transport.abort()
            if self.session.unacknowledged:
                raise lost(self.session, error) from error
        finally:
            self._writer.close()
            await self._writer.wait_closed()
        self.session.check_end()

    async def _check_early_end(self) -> None:
        """Raises if the broker closes first, which means that it refused something."""
        with suppress(TimeoutError):
            async with asyncio.timeout(NOTICE_SECONDS):
                await self._stream.ended.wait()
        if self._stream.ended.is_set():
            raise await self._to_end()

    async def _shut_down(self) -> None:
        self._writer.write(self.session.closing_bytes())
        await self._writer.drain()
        if not self._writer.can_write_eof():  # TLS exchanges close_notify in `close`
            return
        self._writer.write_eof()
        async with self._reading:
            while data := await self._reader.read(READ_BYTES):
                self.session.receive(data)
                self.session.take()
        if self._stream.error:
            raise self._stream.error

    async def disconnect(self) -> None:
        """Closes the connection at once. Publications that are not acknowledged may be lost."""
        self._closed = True
        self.abort()
        await self._handling.cancel()

    def abort(self) -> None:
        """As `disconnect`, but tasks that wait learn that the connection is lost. Handlers may still run."""
        self._writer.transport.abort()

    @property
    def is_closed_by_broker(self) -> bool:
        """Whether the broker has closed. Its last bytes may still be unread."""
        return self._stream.ended.is_set()

    async def run(self, command: Command) -> None:
        await self.send(command.data)
        await self.wait(lambda: not command.acks.pending, self._timeout)
        self.session.check(command.acks)

    async def wait(self, done: Callable[[], bool], seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    async with self._reading:
                        if not done():
                            await self._read()
                    if self._ended and not done():
                        raise closed(self.session) if self._closed else self.session.ended()
        except TimeoutError as error:
            raise silent(self.session, seconds or 0) from error

    async def _read(self) -> None:
        """Reads once and sends the reply."""
        if self.session.failure:
            raise self.session.failure
        data = await self._receive()
        self._ended = not data
        if data and (reply := self.session.receive(data)) and not self._closed:
            self._writer.write(reply)
        self._handling.start()

    def _send_late(self, response: bytes) -> None:
        if not self._closed and not self._stream.ended.is_set():
            self._writer.write(response)

    async def _receive(self) -> bytes:
        data = await self._reader.read(READ_BYTES)
        if not data and self._stream.error:
            raise lost(self.session, self._stream.error)
        return data

    async def _to_end(self) -> RemoteError:
        """The error for a broker that closed first."""
        await self._read_last_reply()
        return lost(self.session, self._stream.error) if self._stream.error else self.session.ended()

    async def send(self, data: bytes, seconds: float | None = None) -> None:
        if self._closed:
            raise closed(self.session)
        if self.session.unacknowledged and self._stream.ended.is_set():
            raise await self._to_end()
        try:
            self._writer.write(data)
            async with asyncio.timeout(seconds):
                await self._writer.drain()
        except TimeoutError as error:
            raise silent(self.session, seconds or 0) from error
        except OSError as error:
            await self._read_last_reply()
            raise lost(self.session, error) from error

    async def _read_last_reply(self) -> None:
        """A broker may send the reason before it closes."""
        async with self._reading:
            while data := await self._reader.read(READ_BYTES):
                self.session.receive(data)


class StreamProtocol(asyncio.StreamReaderProtocol):
    """However the connection ends, the bytes before the end can still be read."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(READ_BYTES)
        super().__init__(self.reader)
        self.error: OSError | None = None
        self.ended = asyncio.Event()
        """Set at the end of the input; bytes before it may still be unread."""

    def eof_received(self) -> bool | None:
        self.ended.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc if isinstance(exc, OSError) else None
        self.ended.set()
        super().connection_lost(None)


async def _open(session: ClientSession, timeout: float) -> tuple[StreamProtocol, asyncio.StreamWriter]:
    address, loop = session.address, asyncio.get_running_loop()
    context = to_context(address, session.credentials)
    stream = StreamProtocol()
    try:
        async with asyncio.timeout(timeout):
            transport: asyncio.Transport
            if address.scheme == "ipc":
                transport, _ = await loop.create_unix_connection(lambda: stream, address.path)
            else:
                transport, _ = await loop.create_connection(
                    lambda: stream, address.host, address.port, ssl=context
                )
    except OSError as error:
        raise unreachable(address, error) from error
    return stream, asyncio.StreamWriter(transport, stream, stream.reader, loop)
