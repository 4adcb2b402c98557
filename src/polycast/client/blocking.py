"""The blocking client: a socket around the client's side of a dialect. For one thread at a time."""

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
from polycast.dialects.client_session import WINDOW, Acks, ClientSession, Command, StartFrom
from polycast.model import Body, Message, Pattern


class Client:
    """`publish` and `subscribe` as often as you like; `messages` yields what arrives, read by read.

    Used in a `with` block, leaving it waits until the broker has read all that was published. Where the dialect
    acknowledges, `publish` has waited for that already.
    """

    def __init__(self, session: ClientSession, timeout: float = 10.0) -> None:
        """`timeout` is for the connection, the handshake, and whatever a broker answers at once."""
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
        """Returns when all are acknowledged or, where the dialect acknowledges nothing, when all are sent.

        What the broker refuses is a `RefusedError`. A broker that was seen to leave is a `RemoteError`.
        """
        session, acks = self._session, Acks()
        for block in session.blocks(messages, acks):
            self._send(block)
            self._wait(lambda: len(session.pending) < WINDOW, ACK_SECONDS)
            if acks.error:
                break
        self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)

    def publish_once(self, messages: Iterable[Message], batch_id: str) -> int:
        """All of them or none, and once only, however often it is tried under this id: how many there are.

        For `hermod`, and a broker that keeps a log. An id with which another number of messages was published is
        a `RefusedError`.
        """
        session, acks = self._session, Acks()
        self._send(session.batch(messages, batch_id, acks))
        self._wait(lambda: not acks.pending, ACK_SECONDS)
        session.check(acks)
        session.check_count(acks, batch_id, acks.sent)
        return acks.accepted

    def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None:
        """Where the dialect tells when subscriptions are in force, returns then.

        With `start`, what the broker's log has from there on comes first.
        """
        self._run(self._session.subscribe(patterns, start))

    def messages(self) -> Iterator[list[Message]]:
        """What arrives and matches, until the broker closes, or this client does."""
        while not self._closed:
            if batch := self._session.take():
                yield batch
            elif not self._read(None):
                self._session.check_end()
                return

    def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Response:
        """Whoever answers may say no: that is an answer as well, with `success` false."""
        seconds, answers = to_seconds(timeout), self._session.responses
        data, number = self._session.to_request(route, body)
        try:
            self._send(data)
            self._wait(lambda: answers[number] is not None, seconds)
        finally:
            answer = answers.pop(number)
        assert answer is not None
        return answer

    def serve(self, route: str, handler: Handler) -> None:
        """Offers to answer requests. They are answered whenever this client reads, as in `messages`."""
        self._run(self._session.to_offer(route, handler))

    def close(self) -> None:
        """Waits for the broker to close its side, which it does when it has read everything.

        Closing twice is no error.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._leave()
        except OSError as error:
            if self._session.unacknowledged:
                raise lost(self._session, error) from error
        finally:
            self._socket.close()
        self._session.check_end()

    def _leave(self) -> None:
        if self._session.unacknowledged:
            self._notice_end()
            self._socket.settimeout(ACK_SECONDS)
        else:
            self._socket.settimeout(self._timeout)
        self._socket.sendall(self._session.closing_bytes())
        self._socket.shutdown(socket.SHUT_WR)
        while data := self._socket.recv(READ_BYTES):
            self._session.receive(data)
            self._session.take()

    def _notice_end(self) -> None:
        """Raises where the broker does not wait for us to close."""
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
        """Reads once, and answers; false at the end of what the broker has to say."""
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
            if self._session.unacknowledged and self._is_left():
                raise self._session.ended()
            self._socket.sendall(data)
        except OSError as error:
            self._hear_last_words()
            raise lost(self._session, error) from error

    def _is_left(self) -> bool:
        """Whether the broker has closed. What it said before that stays unread, and hides it."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def _hear_last_words(self) -> None:
        """A broker that closes on us may have said why."""
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
