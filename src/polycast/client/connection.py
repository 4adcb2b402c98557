"""A connection of the blocking client: a socket around a client session. For one thread at a time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from polycast.client.credentials import TlsSocket, to_context
from polycast.client.failures import (
    ACK_SECONDS,
    LEAST_SECONDS,
    NOTICE_SECONDS,
    READ_BYTES,
    closed,
    lost,
    no_message,
    silent,
    to_seconds,
    unreachable,
)
from polycast.dialects.client_requests import NO_BODY, Response
from polycast.dialects.client_session import ClientSession, Command
from polycast.model import Body, Message


class ClosesOnExit:
    """The end of a `with` block closes; an exception disconnects."""

    def close(self) -> None:
        raise NotImplementedError

    def disconnect(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.disconnect()


class ClientConnection(ClosesOnExit):
    """One connection, from the handshake to its end."""

    def __init__(self, session: ClientSession, timeout: float = 10.0) -> None:
        """`timeout` is for the connection, the handshake, and replies that a broker sends at once."""
        self.address = session.address
        self.session = session
        self._timeout = to_seconds(timeout)
        self._closed = False
        self._socket = _open(session, self._timeout)
        try:
            self.run(session.open())
        except BaseException:
            self._socket.close()
            raise

    def receive(self, seconds: float | None) -> list[Message]:
        """The messages that have arrived, or arrive next; none if the broker closes in good order."""
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while not self.session.messages:
                left = None if until is None else max(until - time.monotonic(), LEAST_SECONDS)
                if not self._read(left):
                    self.session.check_end()
                    break
        except TimeoutError as error:
            raise no_message(self.session, seconds or 0) from error
        return self.session.take()

    def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Response:
        """The response; `success` is false if the request failed."""
        seconds, responses = to_seconds(timeout), self.session.responses
        data, number = self.session.to_request(route, body)
        try:
            self.send(data)
            self.wait(lambda: responses[number] is not None, seconds)
        finally:
            response = responses.pop(number)
        assert response is not None
        return response

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
            if self.session.unacknowledged:
                raise lost(self.session, error) from error
        finally:
            self._socket.close()
        self.session.check_end()

    def _shut_down(self) -> None:
        if self.session.unacknowledged:
            self._check_early_end()
            self._socket.settimeout(ACK_SECONDS)
        else:
            self._socket.settimeout(self._timeout)
        self._socket.sendall(self.session.closing_bytes())
        self._socket.shutdown(socket.SHUT_WR)
        while data := self._socket.recv(READ_BYTES):
            self.session.receive(data)
            self.session.take()

    def _check_early_end(self) -> None:
        """Raises if the broker closes first, which means that it refused something."""
        until = time.monotonic() + NOTICE_SECONDS
        with suppress(TimeoutError):
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(max(left, LEAST_SECONDS))
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise self.session.ended()
                self.session.receive(data)
                self.session.take()

    def disconnect(self) -> None:
        """Closes the connection at once. Publications that are not acknowledged may be lost."""
        self._closed = True
        self._socket.close()

    def run(self, command: Command) -> None:
        self.send(command.data)
        self.wait(lambda: not command.acks.pending, self._timeout)
        self.session.check(command.acks)

    def wait(self, done: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            while not done():
                if not self._read(max(until - time.monotonic(), LEAST_SECONDS)):
                    raise self.session.ended()
        except TimeoutError as error:
            raise silent(self.session, seconds) from error

    def _read(self, seconds: float | None) -> bool:
        """Reads once and sends the reply; false: the broker has closed."""
        if self.session.failure:
            raise self.session.failure
        data = self._receive(seconds)
        if data and (reply := self.session.receive(data)):
            self.send(reply)
        return bool(data)

    def _receive(self, seconds: float | None) -> bytes:
        try:
            self._socket.settimeout(seconds)
            return self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise lost(self.session, error) from error

    def send(self, data: bytes, seconds: float | None = None) -> None:
        if self._closed:
            raise closed(self.session)
        try:
            if self.session.unacknowledged and self.is_closed_by_broker():
                raise self.session.ended()
            self._socket.settimeout(seconds)
            self._socket.sendall(data)
        except TimeoutError as error:
            self.disconnect()  # a part may have been sent
            raise silent(self.session, seconds or 0) from error
        except OSError as error:
            self._read_last_reply()
            raise lost(self.session, error) from error

    def is_closed_by_broker(self) -> bool:
        """Whether the broker has closed and nothing is left to read."""
        try:
            self._socket.settimeout(None)
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def _read_last_reply(self) -> None:
        """A broker may send the reason before it closes."""
        with suppress(OSError):
            self._socket.settimeout(self._timeout)
            while data := self._socket.recv(READ_BYTES):
                self.session.receive(data)


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
