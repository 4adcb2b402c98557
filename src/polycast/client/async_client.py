"""The asyncio client: a stream around a client session. For any number of tasks of one loop.

A task that waits for something reads, one task at a time, on behalf of all tasks. While no task waits, nothing is
read, so unread messages stay with the broker (backpressure).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from types import TracebackType

from polycast.client.credentials import to_context
from polycast.client.failures import (
    ACK_SECONDS,
    NOTICE_SECONDS,
    READ_BYTES,
    closed,
    lost,
    silent,
    to_seconds,
    unreachable,
)
from polycast.dialects.client_requests import NO_BODY, Handler, Response
from polycast.dialects.client_session import WINDOW, ClientSession, Command, PendingAcks, StartFrom
from polycast.errors import RemoteError
from polycast.model import Body, Message, Pattern


class AsyncClient:
    """One connection. `publish` and `subscribe` can be called any number of times; `messages` yields what arrives.

    The end of an `async with` block waits until the broker has read all publications. In a dialect with
    acknowledgements, `publish` waits for them.
    """

    def __init__(
        self, session: ClientSession, stream: StreamProtocol, writer: asyncio.StreamWriter, timeout: float
    ) -> None:
        """Use `open` or `connect_async`, which dial and do the handshake."""
        self.address = session.address
        self._session = session
        self._stream = stream
        self._reader = stream.reader
        self._writer = writer
        self._timeout = timeout
        self._reading = asyncio.Lock()
        self._ended = False
        self._closed = False

    @classmethod
    async def open(cls, session: ClientSession, timeout: float = 10.0) -> AsyncClient:
        """`timeout` is for the connection, the handshake, and replies that a broker sends at once."""
        seconds = to_seconds(timeout)
        client = cls(session, *await _open(session, seconds), seconds)
        try:
            await client._run(session.open())
        except BaseException:
            client._writer.transport.abort()
            raise
        return client

    async def publish(self, messages: Iterable[Message]) -> None:
        """Returns when all messages are acknowledged or, in a dialect without acknowledgements, sent.

        RefusedError: the broker refused a message. RemoteError: the connection is lost.
        """
        session, acks = self._session, PendingAcks()
        for block in session.blocks(messages, acks):
            await self._send(block)
            await self._wait(lambda: len(session.pending) < WINDOW, ACK_SECONDS)
            if acks.error:
                break
        await self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)

    async def publish_once(self, messages: Iterable[Message], batch_id: str) -> int:
        """Publishes an atomic and idempotent batch; returns the number of its messages.

        For `hermod`, and a broker with a log. RefusedError: a batch with another number of messages was published
        under this id.
        """
        session, acks = self._session, PendingAcks()
        await self._send(session.batch(messages, batch_id, acks))
        await self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)
        session.check_count(acks, batch_id, acks.sent)
        return acks.accepted

    async def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None:
        """Returns when the subscriptions are in force, in a dialect that confirms it.

        With `start`, the broker first replays its log from there.
        """
        await self._run(self._session.subscribe(patterns, start))

    async def messages(self) -> AsyncIterator[list[Message]]:
        """Lists of messages that arrive and match, until the broker or this client closes the connection."""
        session = self._session
        while not self._closed:
            try:
                await self._wait(lambda: bool(session.messages) or self._ended or self._closed, None)
            except RemoteError:
                if not self._closed:
                    raise
            if self._closed:
                return
            if not session.messages:
                session.check_end()
                return
            yield session.take()

    async def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Response:
        """The response; `success` is false if the request failed."""
        seconds, responses = to_seconds(timeout), self._session.responses
        data, number = self._session.to_request(route, body)
        try:
            await self._send(data)
            await self._wait(lambda: responses[number] is not None, seconds)
        finally:
            response = responses.pop(number)
        assert response is not None
        return response

    async def serve(self, route: str, handler: Handler) -> None:
        """Serves a route. Requests are handled while this client reads, as in `messages`."""
        await self._run(self._session.to_offer(route, handler))

    async def close(self) -> None:
        """Closes the sending direction and waits for the broker to close, which it does when it has read
        everything.

        Ends the loops over `messages` in other tasks. A second call has no effect.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._session.unacknowledged:
                await self._check_early_end()
            async with asyncio.timeout(ACK_SECONDS if self._session.unacknowledged else self._timeout):
                await self._shut_down()
        except OSError as error:
            self._writer.transport.abort()
            if self._session.unacknowledged:
                raise lost(self._session, error) from error
        finally:
            self._writer.close()
            await self._writer.wait_closed()
        self._session.check_end()

    async def _check_early_end(self) -> None:
        """Raises if the broker closes first, which means that it refused something."""
        with suppress(TimeoutError):
            async with asyncio.timeout(NOTICE_SECONDS):
                await self._stream.ended.wait()
        if self._stream.ended.is_set():
            raise await self._to_end()

    async def _shut_down(self) -> None:
        self._writer.write(self._session.closing_bytes())
        await self._writer.drain()
        if not self._writer.can_write_eof():  # TLS exchanges close_notify in `close`
            return
        self._writer.write_eof()
        async with self._reading:
            while data := await self._reader.read(READ_BYTES):
                self._session.receive(data)
                self._session.take()
        if self._stream.error:
            raise self._stream.error

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            self._closed = True
            self._writer.transport.abort()

    async def _run(self, command: Command) -> None:
        await self._send(command.data)
        await self._wait(lambda: not command.acks.pending, self._timeout)
        self._session.check(command.acks)

    async def _wait(self, done: Callable[[], bool], seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    async with self._reading:
                        if not done():
                            await self._read()
                    if self._ended and not done():
                        raise closed(self._session) if self._closed else self._session.ended()
        except TimeoutError as error:
            raise silent(self._session, seconds or 0) from error

    async def _read(self) -> None:
        """Reads once and sends the reply."""
        if self._session.failure:
            raise self._session.failure
        data = await self._receive()
        self._ended = not data
        if data and (reply := self._session.receive(data)) and not self._closed:
            self._writer.write(reply)

    async def _receive(self) -> bytes:
        data = await self._reader.read(READ_BYTES)
        if not data and self._stream.error:
            raise lost(self._session, self._stream.error)
        return data

    async def _to_end(self) -> RemoteError:
        """The error for a broker that closed first."""
        await self._read_last_reply()
        return lost(self._session, self._stream.error) if self._stream.error else self._session.ended()

    async def _send(self, data: bytes) -> None:
        if self._closed:
            raise closed(self._session)
        if self._session.unacknowledged and self._stream.ended.is_set():
            raise await self._to_end()
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            await self._read_last_reply()
            raise lost(self._session, error) from error

    async def _read_last_reply(self) -> None:
        """A broker may send the reason before it closes."""
        async with self._reading:
            while data := await self._reader.read(READ_BYTES):
                self._session.receive(data)


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
