"""The blocking client: one connection after the other. For one thread at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from polycast.address import Address
from polycast.client.connection import ClientConnection, ClosesOnExit
from polycast.client.failures import ACK_SECONDS, closed, no_broker, passes, to_seconds
from polycast.client.publication import Publication, new_batch_ids
from polycast.client.resume import Resume
from polycast.dialects.client_requests import NO_BODY, Handler, Response
from polycast.dialects.client_session import WINDOW, ClientSession, PendingAcks
from polycast.dialects.client_subscriptions import StartFrom
from polycast.errors import RemoteError, ReplyTimeoutError
from polycast.model import Body, Message, Pattern

T = TypeVar("T")


class Client(ClosesOnExit):
    """`publish` and `subscribe` can be called any number of times; `messages` yields what arrives.

    When the connection is lost, the next operation reconnects, subscribes again and, in hermod, continues where
    the last connection ended. The end of a `with` block waits until the broker has read all publications. In
    a dialect with acknowledgements, `publish` waits for them.
    """

    _connection: ClientConnection

    def __init__(self, resume: Resume, timeout: float = 10.0) -> None:
        """Use `connect`. `timeout` is for a connection, its handshake, and replies that a broker sends at once."""
        self._resume = resume
        self._timeout = to_seconds(timeout)
        self._batch_ids = new_batch_ids()
        self._closed = False
        self._connected = False
        for left in range(resume.addresses - 1, -1, -1):
            try:
                self._dial()
                return
            except RemoteError as error:
                resume.fail(error)
                if not left or not passes(error):
                    raise

    @property
    def address(self) -> Address:
        """Address of the broker that this client is connected to, or was."""
        return self._connection.address

    @property
    def reconnects(self) -> int:
        return self._resume.reconnects

    # -- operations --------------------------------------------------------------------------------------

    def publish(self, messages: Iterable[Message], timeout: float = ACK_SECONDS) -> None:
        """Returns when all messages are acknowledged or, in a dialect without acknowledgements, sent.

        RefusedError: the broker refused a message. ReplyTimeoutError: no acknowledgement, or no broker, for
        `timeout` seconds. RemoteError: the connection is lost, and messages with it.
        """
        seconds = to_seconds(timeout)
        publication = Publication(self._connection.session, messages, self._batch_ids)
        self._retry(
            lambda connection: self._send(connection, publication, seconds), seconds, publication.may_resend
        )

    def _send(self, connection: ClientConnection, publication: Publication, seconds: float) -> None:
        session = connection.session
        try:
            for block in publication.blocks():
                connection.wait(lambda: len(session.pending) < WINDOW, seconds)
                if publication.refused:
                    break
                connection.send(publication.to_frame(block, session), seconds)
            connection.wait(lambda: publication.done, seconds)
        finally:
            publication.check(session)  # a refusal explains why the connection ended

    def publish_once(self, messages: Iterable[Message], batch_id: str, timeout: float = ACK_SECONDS) -> int:
        """Publishes an atomic and idempotent batch; returns the number of its messages.

        For `hermod`, and a broker with a log. RefusedError: a batch with another number of messages was published
        under this id.
        """
        seconds, listed = to_seconds(timeout), list(messages)

        def act(connection: ClientConnection) -> int:
            session, acks = connection.session, PendingAcks()
            connection.send(session.batch(listed, batch_id, acks), seconds)
            connection.wait(lambda: not acks.pending, seconds)
            session.check(acks)
            session.check_count(acks, batch_id, acks.sent)
            return acks.accepted

        return self._retry(act, seconds)

    def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None:
        """Returns when the subscriptions are in force, in a dialect that confirms it.

        With `start`, the broker first replays its log from there.
        """
        wanted = self._connection.session.check_patterns(patterns, start)
        self._retry(lambda connection: connection.run(connection.session.subscribe(wanted, start)), self._timeout)

    def receive(self, timeout: float | None = None) -> list[Message]:
        """The next messages that arrive and match, at least one; none if the broker or this client has closed.

        ReplyTimeoutError: none arrived for `timeout` seconds.
        """
        seconds = None if timeout is None else to_seconds(timeout)
        return [] if self._closed else self._retry(lambda connection: self._receive(connection, seconds), seconds)

    def _receive(self, connection: ClientConnection, seconds: float | None) -> list[Message]:
        batch = connection.receive(seconds)
        if not batch and self._resume.reconnect and not self._closed:
            raise connection.session.ended()
        return batch

    def messages(self) -> Iterator[list[Message]]:
        """Lists of messages that arrive and match, until this client closes or, if it does not reconnect, the
        broker closes."""
        while batch := self.receive():
            yield batch

    def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Response:
        """The response; `success` is false if the request failed. A request is not sent again."""
        seconds = to_seconds(timeout)
        return self._retry(
            lambda connection: connection.request(route, body, seconds), seconds, lambda session: False
        )

    def serve(self, route: str, handler: Handler) -> None:
        """Serves a route. Requests are handled while this client reads, as in `messages`."""
        self._retry(lambda connection: connection.run(connection.session.to_offer(route, handler)), self._timeout)

    # -- connections -------------------------------------------------------------------------------------

    def _retry(
        self,
        act: Callable[[ClientConnection], T],
        seconds: float | None,
        may_repeat: Callable[[ClientSession], bool] = lambda session: True,
    ) -> T:
        """Acts on a connection, and on the next one if that is lost."""
        while True:
            connection = self._connect(seconds)
            try:
                return act(connection)
            except ReplyTimeoutError:
                raise
            except RemoteError as error:
                repeats = self._resume.may_return(connection.session, error) and not self._closed
                self._lose(connection, error)
                if not repeats or not may_repeat(connection.session):
                    raise

    def _lose(self, connection: ClientConnection, error: RemoteError) -> None:
        """A client that does not reconnect keeps its connection, whose methods raise."""
        current = self._connected and not self._closed
        if current and self._resume.lose(connection.session, error, time.monotonic()):
            connection.disconnect()
            self._connected = False

    def _connect(self, seconds: float | None) -> ClientConnection:
        """The connection; a new one if it is lost."""
        if self._closed:
            raise closed(self._connection.session)
        self._check_idle()
        until = None if seconds is None else time.monotonic() + seconds
        while not self._connected:
            left = None if until is None else until - time.monotonic()
            pause = self._resume.pause()
            if left is not None and (left <= 0 or pause > left):
                time.sleep(max(left, 0))
                raise no_broker(self.address, seconds or 0, self._resume.error)
            time.sleep(pause)
            try:
                self._dial()
            except RemoteError as error:
                self._resume.fail(error)
                if not passes(error):
                    raise
        return self._connection

    def _check_idle(self) -> None:
        """Notices that the broker has closed, before something is sent that could not be sent again."""
        connection, session = self._connection, self._connection.session
        if self._connected and self._resume.reconnect and not session.unacknowledged and not session.messages:
            try:
                ended = connection.is_closed_by_broker()
            except OSError:
                ended = True
            if ended:
                self._lose(connection, session.ended())

    def _dial(self) -> None:
        session = self._resume.next_dial()()
        self._resume.begin(session)
        connection = ClientConnection(session, self._timeout)
        try:
            for command in self._resume.commands(session):
                connection.run(command)
        except BaseException:
            connection.disconnect()
            raise
        self._connection, self._connected = connection, True
        self._resume.connected(session, time.monotonic())

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the sending direction and waits for the broker to close, which it does when it has read
        everything.

        A second call has no effect.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._connected:
                self._connection.close()
        finally:
            self._resume.close()

    def disconnect(self) -> None:
        """Closes the connection at once. Publications that are not acknowledged may be lost."""
        if not self._closed:
            self._closed = True
            self._connection.disconnect()
            self._resume.close()
