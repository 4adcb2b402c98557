"""The asyncio client: one connection after the other. For any number of tasks of one loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from polycast.address import Address
from polycast.client.async_connection import AsyncConnection
from polycast.client.failures import ACK_SECONDS, closed, no_broker, passes, to_seconds
from polycast.client.publication import Publication, new_batch_ids
from polycast.client.resume import Resume
from polycast.dialects.client_requests import NO_BODY, Handler, Response
from polycast.dialects.client_session import WINDOW, ClientSession, PendingAcks
from polycast.dialects.client_subscriptions import StartFrom
from polycast.errors import RemoteError, ReplyTimeoutError
from polycast.model import Body, Message, Pattern

T = TypeVar("T")


class AsyncClient:
    """`publish` and `subscribe` can be called any number of times; `messages` yields what arrives.

    When the connection is lost, the next operation reconnects, subscribes again and, in hermod, continues where
    the last connection ended. The end of an `async with` block waits until the broker has read all publications.
    In a dialect with acknowledgements, `publish` waits for them.
    """

    _connection: AsyncConnection

    def __init__(self, resume: Resume, timeout: float = 10.0) -> None:
        """Use `open` or `connect_async`. `timeout` is for a connection, its handshake, and replies that a broker
        sends at once."""
        self._resume = resume
        self._timeout = to_seconds(timeout)
        self._batch_ids = new_batch_ids()
        self._closing = asyncio.Event()
        self._connected = False
        self._dialing = asyncio.Lock()

    @classmethod
    async def open(cls, resume: Resume, timeout: float = 10.0) -> AsyncClient:
        client = cls(resume, timeout)
        for left in range(resume.addresses - 1, -1, -1):
            try:
                await client._dial()
                break
            except RemoteError as error:
                resume.fail(error)
                if not left or not passes(error):
                    raise
        return client

    @property
    def address(self) -> Address:
        """Address of the broker that this client is connected to, or was."""
        return self._connection.address

    @property
    def reconnects(self) -> int:
        return self._resume.reconnects

    @property
    def _closed(self) -> bool:
        return self._closing.is_set()

    # -- operations --------------------------------------------------------------------------------------

    async def publish(self, messages: Iterable[Message], timeout: float = ACK_SECONDS) -> None:
        """Returns when all messages are acknowledged or, in a dialect without acknowledgements, sent.

        RefusedError: the broker refused a message. ReplyTimeoutError: no acknowledgement, or no broker, for
        `timeout` seconds. RemoteError: the connection is lost, and messages with it.
        """
        seconds = to_seconds(timeout)
        publication = Publication(self._connection.session, messages, self._batch_ids)
        await self._retry(
            lambda connection: self._send(connection, publication, seconds), seconds, publication.may_resend
        )

    async def _send(self, connection: AsyncConnection, publication: Publication, seconds: float) -> None:
        session = connection.session
        try:
            for block in publication.blocks():
                await connection.wait(lambda: len(session.pending) < WINDOW, seconds)
                if publication.refused:
                    break
                await connection.send(publication.to_frame(block, session), seconds)
            await connection.wait(lambda: publication.done, seconds)
        finally:
            publication.check(session)  # a refusal explains why the connection ended

    async def publish_once(self, messages: Iterable[Message], batch_id: str, timeout: float = ACK_SECONDS) -> int:
        """Publishes an atomic and idempotent batch; returns the number of its messages.

        For `hermod`, and a broker with a log. RefusedError: a batch with another number of messages was published
        under this id.
        """
        seconds, listed = to_seconds(timeout), list(messages)

        async def act(connection: AsyncConnection) -> int:
            session, acks = connection.session, PendingAcks()
            await connection.send(session.batch(listed, batch_id, acks), seconds)
            await connection.wait(lambda: not acks.pending, seconds)
            session.check(acks)
            session.check_count(acks, batch_id, acks.sent)
            return acks.accepted

        return await self._retry(act, seconds)

    async def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None:
        """Returns when the subscriptions are in force, in a dialect that confirms it.

        With `start`, the broker first replays its log from there.
        """
        wanted = self._connection.session.check_patterns(patterns, start)
        await self._retry(
            lambda connection: connection.run(connection.session.subscribe(wanted, start)), self._timeout
        )

    async def receive(self, timeout: float | None = None) -> list[Message]:
        """The next messages that arrive and match, at least one; none if the broker or this client has closed.

        ReplyTimeoutError: none arrived for `timeout` seconds.
        """
        seconds = None if timeout is None else to_seconds(timeout)
        if self._closed:
            return []
        try:
            return await self._retry(lambda connection: self._receive(connection, seconds), seconds)
        except RemoteError:
            if not self._closed:
                raise
            return []

    async def _receive(self, connection: AsyncConnection, seconds: float | None) -> list[Message]:
        batch = await connection.receive(seconds)
        if not batch and self._resume.reconnect and not self._closed:
            raise connection.session.ended()
        return batch

    async def messages(self) -> AsyncIterator[list[Message]]:
        """Lists of messages that arrive and match, until this client closes or, if it does not reconnect, the
        broker closes."""
        while batch := await self.receive():
            yield batch

    async def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Response:
        """The response; `success` is false if the request failed. A request is not sent again."""
        seconds = to_seconds(timeout)
        return await self._retry(
            lambda connection: connection.request(route, body, seconds), seconds, lambda session: False
        )

    async def serve(self, route: str, handler: Handler) -> None:
        """Serves a route. Requests are handled while this client reads, as in `messages`.

        An `async` handler runs as a task of its own. `close` cancels those that still run.
        """
        await self._retry(
            lambda connection: connection.run(connection.session.to_offer(route, handler)), self._timeout
        )

    # -- connections -------------------------------------------------------------------------------------

    async def _retry(
        self,
        act: Callable[[AsyncConnection], Awaitable[T]],
        seconds: float | None,
        may_repeat: Callable[[ClientSession], bool] = lambda session: True,
    ) -> T:
        """Acts on a connection, and on the next one if that is lost."""
        while True:
            connection = await self._connect(seconds)
            try:
                return await act(connection)
            except ReplyTimeoutError:
                raise
            except RemoteError as error:
                repeats = self._resume.may_return(connection.session, error) and not self._closed
                self._lose(connection, error)
                if not repeats or not may_repeat(connection.session):
                    raise

    def _lose(self, connection: AsyncConnection, error: RemoteError) -> None:
        """A client that does not reconnect keeps its connection, whose methods raise."""
        current = connection is self._connection and self._connected and not self._closed
        if current and self._resume.lose(connection.session, error, time.monotonic()):
            connection.abort()
            self._connected = False

    async def _connect(self, seconds: float | None) -> AsyncConnection:
        """The connection; a new one if it is lost."""
        self._check_idle()
        if self._connected and not self._closed:
            return self._connection
        try:
            async with asyncio.timeout(seconds), self._dialing:
                while not self._connected and not self._closed:
                    await self._redial()
        except TimeoutError as error:
            raise no_broker(self.address, seconds or 0, self._resume.error) from error
        if self._closed:
            raise closed(self._connection.session)
        return self._connection

    async def _redial(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), self._resume.pause())
            return
        try:
            await self._dial()
        except RemoteError as error:
            self._resume.fail(error)
            if not passes(error):
                raise

    def _check_idle(self) -> None:
        """Notices that the broker has closed, before something is sent that could not be sent again."""
        connection, session = self._connection, self._connection.session
        idle = not session.unacknowledged and not session.messages and not session.pending
        if idle and self._resume.reconnect and connection.is_closed_by_broker:
            self._lose(connection, session.ended())

    async def _dial(self) -> None:
        dial = self._resume.next_dial()
        session = await asyncio.to_thread(dial) if self._resume.dials_block else dial()
        self._resume.begin(session)
        connection = await AsyncConnection.open(session, self._timeout)
        try:
            for command in self._resume.commands(session):
                await connection.run(command)
        except BaseException:
            await connection.disconnect()
            raise
        self._connection, self._connected = connection, True
        self._resume.connected(session, time.monotonic())

    # -- the end -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes the sending direction and waits for the broker to close, which it does when it has read
        everything.

        Ends the loops over `messages` in other tasks. A second call has no effect.
        """
        if self._closed:
            return
        self._closing.set()
        try:
            if self._connected:
                await self._connection.close()
        finally:
            self._resume.close()

    async def disconnect(self) -> None:
        """Closes the connection at once. Publications that are not acknowledged may be lost."""
        if not self._closed:
            self._closing.set()
            await self._connection.disconnect()
            self._resume.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self.disconnect()
