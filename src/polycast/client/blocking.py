"""The blocking client: a socket around the client's side of a dialect. For one thread at a time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType

from polycast.address import Address
from polycast.client.reach import ACK_SECONDS, READ_BYTES, lost, silent, unreachable
from polycast.client.requests import NO_BODY, Answer, Handler
from polycast.client.side import WINDOW, Receipt, Said, Side
from polycast.model import Body, Message, Pattern

LEAST_SECONDS = 0.001
"""A socket takes 0 for something else than a short time."""


class Client:
    """`publish` and `subscribe` as often as you like; `messages` yields what arrives, read by read.

    Used in a `with` block, leaving it waits until the broker has read all that was published. Where the dialect
    acknowledges, `publish` has waited for that already.
    """

    def __init__(self, side: Side, timeout: float = 10.0) -> None:
        """`timeout` is for the connection, the handshake, and whatever a broker answers at once."""
        self.address = side.address
        self._side = side
        self._timeout = timeout
        self._socket = _open(side.address, timeout)
        try:
            self._say(side.open())
        except BaseException:
            self._socket.close()
            raise

    def publish(self, messages: Iterable[Message]) -> None:
        side, receipt = self._side, Receipt()
        for block in side.blocks(messages, receipt):
            self._send(block)
            self._wait(lambda: len(side.owed) < WINDOW, ACK_SECONDS)
            if receipt.error:
                break
        self._wait(lambda: not receipt.owed, ACK_SECONDS)
        side.check(receipt)

    def subscribe(self, patterns: Iterable[Pattern]) -> None:
        """Where the dialect tells when subscriptions are in force, returns then."""
        self._say(self._side.asks(patterns))

    def messages(self) -> Iterator[list[Message]]:
        """What arrives and matches, until the broker closes."""
        while True:
            if batch := self._side.take():
                yield batch
            elif not self._read(None):
                self._side.check_end()
                return

    def request(self, route: str, body: Body = NO_BODY, timeout: float = ACK_SECONDS) -> Answer:
        """Whoever answers may say no: that is an answer as well, with `success` false."""
        answers = self._side.answers
        data, number = self._side.to_request(route, body)
        try:
            self._send(data)
            self._wait(lambda: answers[number] is not None, timeout)
        finally:
            answer = answers.pop(number)
        assert answer is not None
        return answer

    def serve(self, route: str, handler: Handler) -> None:
        """Offers to answer requests. They are answered whenever this client reads, as in `messages`."""
        self._say(self._side.to_offer(route, handler))

    def close(self) -> None:
        """Waits for the broker to close its side, which it does when it has read everything."""
        seconds = ACK_SECONDS if self._side.unconfirmed else self._timeout
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(self._side.farewell())
            self._socket.shutdown(socket.SHUT_WR)
            while data := self._socket.recv(READ_BYTES):
                self._side.receive(data)
                self._side.take()
        except OSError as error:
            if self._side.unconfirmed:
                raise lost(self._side, error) from error
        finally:
            self._socket.close()
        self._side.check_end()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._socket.close()

    def _say(self, said: Said) -> None:
        self._send(said.data)
        self._wait(lambda: not said.receipt.owed, self._timeout)
        self._side.check(said.receipt)

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            while not done():
                if not self._read(max(until - time.monotonic(), LEAST_SECONDS)):
                    raise self._side.ended()
        except TimeoutError as error:
            raise silent(self._side, seconds) from error

    def _read(self, seconds: float | None) -> bool:
        """Reads once, and answers; false at the end of what the broker has to say."""
        if self._side.broken:
            raise self._side.broken
        data = self._receive(seconds)
        if data and (reply := self._side.receive(data)):
            self._send(reply)
        return bool(data)

    def _receive(self, seconds: float | None) -> bytes:
        try:
            self._socket.settimeout(seconds)
            return self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise lost(self._side, error) from error

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(None)
            self._socket.sendall(data)
        except OSError as error:
            self._hear_last_words()
            raise lost(self._side, error) from error

    def _hear_last_words(self) -> None:
        """A broker that closes on us may have said why."""
        with suppress(OSError):
            self._socket.settimeout(self._timeout)
            while data := self._socket.recv(READ_BYTES):
                self._side.receive(data)


def _open(address: Address, timeout: float) -> socket.socket:
    try:
        if address.scheme == "ipc":
            return _open_ipc(address.path, timeout)
        sock = socket.create_connection((address.host, address.port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise unreachable(address, error) from error
    return sock


def _open_ipc(path: str, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock
