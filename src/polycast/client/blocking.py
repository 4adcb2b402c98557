"""The blocking client: a socket around a client session. For one thread at a time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType

from polycast.client.credentials import TlsSocket, to_context
from polycast.client.failures import (
    ACK_SECONDS,
    LEAST_SECONDS,
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
from polycast.model import Body, Message, Pattern


class Client:
    """One connection. `publish` and `subscribe` can be called any number of times; `messages` yields what arrives.

    The end of a `with` block waits until the broker has read all publications. In a dialect with acknowledgements,
    `publish` waits for them.
    """

    def __init__(self, session: ClientSession, timeout: float = 10.0) -> None:
        """`timeout` is for the connection, the handshake, and replies that a broker sends at once."""
        self.address = session.address
        self._session = session
        self._timeout = to_seconds(timeout)
        self._closed = False
        self._socket = _open(session, self._timeout)
        try:
            self._run(session.open())
        except BaseException:
            self._socket.close()
            raise

    def publish(self, messages: Iterable[Message]) -> None:
        """Returns when all messages are acknowledged or, in a dialect without acknowledgements, sent.

        RefusedError: the broker refused a message. RemoteError: the connection is lost.
        """
        session, acks = self._session, PendingAcks()
        for block in session.blocks(messages, acks):
            self._send(block)
            self._wait(lambda: len(session.pending) < WINDOW, ACK_SECONDS)
            if acks.error:
                break
        self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)

    def publish_once(self, messages: Iterable[Message], batch_id: str) -> int:
        """Publishes an atomic and idempotent batch; returns the number of its messages.

        For `hermod`, and a broker with a log. RefusedError: a batch with another number of messages was published
        under this id.
        """
        session, acks = self._session, PendingAcks()
        self._send(session.batch(messages, batch_id, acks))
        self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)
        session.check_count(acks, batch_id, acks.sent)
        return acks.accepted

    def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None:
        """Returns when the subscriptions are in force, in a dialect that confirms it.

        With `start`, the broker first replays its log from there.
        """
        self._run(self._session.subscribe(patterns, start))

    def messages(self) -> Iterator[list[Message]]:
        """Lists of messages that arrive and match, until the broker or this client closes the connection."""
        while not self._closed:
            if batch := self._session.take():
                yield batch
            elif not self._read(None):
                self._session.check_end()
                return

    def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Response:
        """The response; `success` is false if the request failed."""
        seconds, responses = to_seconds(timeout), self._session.responses
        data, number = self._session.to_request(route, body)
        try:
            self._send(data)
            self._wait(lambda: responses[number] is not None, seconds)
        finally:
            response = responses.pop(number)
        assert response is not None
        return response

    def serve(self, route: str, handler: Handler) -> None:
        """Serves a route. Requests are handled while this client reads, as in `messages`."""
        self._run(self._session.to_offer(route, handler))

    def close(self) -> None:
        """Closes the sending direction and waits for the broker to close, which it does when it has read
        everything.

        A second call has no effect.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._shut_down()
        except OSError as error:
            if self._session.unacknowledged:
                raise lost(self._session, error) from error
        finally:
            self._socket.close()
        self._session.check_end()

    def _shut_down(self) -> None:
        if self._session.unacknowledged:
            self._check_early_end()
            self._socket.settimeout(ACK_SECONDS)
        else:
            self._socket.settimeout(self._timeout)
        self._socket.sendall(self._session.closing_bytes())
        self._socket.shutdown(socket.SHUT_WR)
        while data := self._socket.recv(READ_BYTES):
            self._session.receive(data)
            self._session.take()

    def _check_early_end(self) -> None:
        """Raises if the broker closes first, which means that it refused something."""
        until = time.monotonic() + NOTICE_SECONDS
        with suppress(TimeoutError):
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(max(left, LEAST_SECONDS))
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise self._session.ended()
                self._session.receive(data)
                self._session.take()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._closed = True
            self._socket.close()

    def _run(self, command: Command) -> None:
        self._send(command.data)
        self._wait(lambda: not command.acks.pending, self._timeout)
        self._session.check(command.acks)

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            while not done():
                if not self._read(max(until - time.monotonic(), LEAST_SECONDS)):
                    raise self._session.ended()
        except TimeoutError as error:
            raise silent(self._session, seconds) from error

    def _read(self, seconds: float | None) -> bool:
        """Reads once and sends the reply; false: the broker has closed."""
        if self._session.failure:
            raise self._session.failure
        data = self._receive(seconds)
        if data and (reply := self._session.receive(data)):
            self._send(reply)
        return bool(data)

    def _receive(self, seconds: float | None) -> bytes:
        try:
            self._socket.settimeout(seconds)
            return self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise lost(self._session, error) from error

    def _send(self, data: bytes) -> None:
        if self._closed:
            raise closed(self._session)
        try:
            self._socket.settimeout(None)
            if self._session.unacknowledged and self._is_closed_by_broker():
                raise self._session.ended()
            self._socket.sendall(data)
        except OSError as error:
            self._read_last_reply()
            raise lost(self._session, error) from error

    def _is_closed_by_broker(self) -> bool:
        """Whether the broker has closed and nothing is left to read."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def _read_last_reply(self) -> None:
        """A broker may send the reason before it closes."""
        with suppress(OSError):
            self._socket.settimeout(self._timeout)
            while data := self._socket.recv(READ_BYTES):
                self._session.receive(data)


def _open(session: ClientSession, timeout: float) -> socket.socket | TlsSocket:
    address = session.address
    context = to_context(address, session.credentials)
    try:
        if address.scheme == "ipc":
            return _open_ipc(address.path, timeout)
        sock = socket.create_connection((address.host, address.port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return TlsSocket(sock, context, address.host) if context else sock
    except OSError as error:
        raise unreachable(address, error) from error


def _open_ipc(path: str, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock
