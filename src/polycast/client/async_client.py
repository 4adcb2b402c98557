"""The asyncio client: a stream around the client's side of a dialect. For any number of tasks of one loop.

Whoever waits for something reads, one task at a time, and what it reads is there for all of them. While nobody
waits nobody reads, so what a client does not look at stays with the broker.
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
from polycast.dialects.client_session import WINDOW, Acks, ClientSession, Command, StartFrom
from polycast.errors import RemoteError
from polycast.model import Body, Message, Pattern


class AsyncClient:
    """`publish` and `subscribe` as often as you like; `messages` yields what arrives, read by read.

    Used in an `async with` block, leaving it waits until the broker has read all that was published. Where the
    dialect acknowledges, `publish` has waited for that already.
    """

    def __init__(
        self, session: ClientSession, stream: StreamProtocol, writer: asyncio.StreamWriter, timeout: float
    ) -> None:
        """Use `open` or `connect_async`, which dial, and have the handshake behind them."""
        self.address = session.address
        self._session = session
        self._stream = stream
        self._reader = stream.reader
        self._writer = writer
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._ended = False
        self._closed = False

    @classmethod
    async def open(cls, session: ClientSession, timeout: float = 10.0) -> AsyncClient:
        """`timeout` is for the connection, the handshake, and whatever a broker answers at once."""
        seconds = to_seconds(timeout)
        client = cls(session, *await _open(session, seconds), seconds)
        try:
            await client._run(session.open())
        except BaseException:
            client._writer.transport.abort()
            raise
        return client

    async def publish(self, messages: Iterable[Message]) -> None:
        """Returns when all are acknowledged or, where the dialect acknowledges nothing, when all are sent.

        What the broker refuses is a `RefusedError`. A broker that was seen to leave is a `RemoteError`.
        """
        session, acks = self._session, Acks()
        for block in session.blocks(messages, acks):
            await self._send(block)
            await self._wait(lambda: len(session.pending) < WINDOW, ACK_SECONDS)
            if acks.error:
                break
        await self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)

    async def publish_once(self, messages: Iterable[Message], batch_id: str) -> int:
        """All of them or none, and once only, however often it is tried under this id: how many there are.

        For `hermod`, and a broker that keeps a log. An id with which another number of messages was published is
        a `RefusedError`.
        """
        session, acks = self._session, Acks()
        await self._send(session.batch(messages, batch_id, acks))
        await self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)
        session.check_count(acks, batch_id, acks.sent)
        return acks.accepted

    async def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None:
        """Where the dialect tells when subscriptions are in force, returns then.

        With `start`, what the broker's log has from there on comes first.
        """
        await self._run(self._session.subscribe(patterns, start))

    async def messages(self) -> AsyncIterator[list[Message]]:
        """What arrives and matches, until the broker closes, or this client does."""
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
        """Whoever answers may say no: that is an answer as well, with `success` false."""
        seconds, answers = to_seconds(timeout), self._session.responses
        data, number = self._session.to_request(route, body)
        try:
            await self._send(data)
            await self._wait(lambda: answers[number] is not None, seconds)
        finally:
            answer = answers.pop(number)
        assert answer is not None
        return answer

    async def serve(self, route: str, handler: Handler) -> None:
        """Offers to answer requests. They are answered whenever this client reads, as in `messages`."""
        await self._run(self._session.to_offer(route, handler))

    async def close(self) -> None:
        """Waits for the broker to close its side, which it does when it has read everything.

        Ends the loops over `messages` in other tasks. Closing twice is no error.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._session.unacknowledged:
                await self._notice_end()
            async with asyncio.timeout(ACK_SECONDS if self._session.unacknowledged else self._timeout):
                await self._leave()
        except OSError as error:
            self._writer.transport.abort()
            if self._session.unacknowledged:
                raise lost(self._session, error) from error
        finally:
            self._writer.close()
            await self._writer.wait_closed()
        self._session.check_end()

    async def _notice_end(self) -> None:
        """Raises where the broker does not wait for us to close."""
        with suppress(TimeoutError):
            async with asyncio.timeout(NOTICE_SECONDS):
                await self._stream.over.wait()
        if self._stream.over.is_set():
            raise await self._to_end()

    async def _leave(self) -> None:
        self._writer.write(self._session.closing_bytes())
        await self._writer.drain()
        if not self._writer.can_write_eof():  # TLS says goodbye by itself, and waits for that of the broker
            return
        self._writer.write_eof()
        async with self._turn:
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
                    async with self._turn:
                        if not done():
                            await self._read()
                    if self._ended and not done():
                        raise closed(self._session) if self._closed else self._session.ended()
        except TimeoutError as error:
            raise silent(self._session, seconds or 0) from error

    async def _read(self) -> None:
        """Reads once, and answers."""
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
        """The error for a broker that left before we did."""
        await self._hear_last_words()
        return lost(self._session, self._stream.error) if self._stream.error else self._session.ended()

    async def _send(self, data: bytes) -> None:
        if self._closed:
            raise closed(self._session)
        if self._session.unacknowledged and self._stream.over.is_set():
            raise await self._to_end()
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            await self._hear_last_words()
            raise lost(self._session, error) from error

    async def _hear_last_words(self) -> None:
        """A broker that closes on us may have said why."""
        async with self._turn:
            while data := await self._reader.read(READ_BYTES):
                self._session.receive(data)


class StreamProtocol(asyncio.StreamReaderProtocol):
    """However the connection ended, what came before is still to be read."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(READ_BYTES)
        super().__init__(self.reader)
        self.error: OSError | None = None
        self.over = asyncio.Event()
        """Nothing more will come, though some of what came may not have been looked at."""

    def eof_received(self) -> bool | None:
        self.over.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc if isinstance(exc, OSError) else None
        self.over.set()
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
