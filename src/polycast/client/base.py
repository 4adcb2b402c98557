"""What all blocking clients have in common: a socket, the messages that arrive, and an end that loses nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from types import TracebackType

from polycast.address import Address
from polycast.errors import RemoteError
from polycast.model import Message, Pattern

READ_BYTES = 256 * 1024
SEND_BYTES = 256 * 1024


class Client:
    """`publish` and `subscribe` as often as you like; `messages` yields what arrives, read by read.

    Used in a `with` block, leaving it waits until the broker has read all that was published.
    """

    def __init__(self, address: Address, timeout: float = 10.0) -> None:
        self.address = address
        self._socket = _open(address, timeout)
        self._left = b""
        self._patterns: list[Pattern] = []

    # A dialect says these four.

    def encode(self, message: Message) -> bytes:
        raise NotImplementedError

    def ask(self, pattern: Pattern) -> bytes:
        """The commands that bring at least all that matches the pattern."""
        raise NotImplementedError

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        """Whether a topic, as this dialect writes it, matches the pattern."""
        raise NotImplementedError

    def decode(self, data: bytes) -> tuple[list[Message], bytes]:
        """The messages in `data`, and what is left of it."""
        raise NotImplementedError

    def publish(self, messages: Iterable[Message]) -> None:
        batch = bytearray()
        for message in messages:
            batch += self.encode(message)
            if len(batch) >= SEND_BYTES:
                self._send(batch)
                batch.clear()
        self._send(batch)

    def subscribe(self, patterns: Iterable[Pattern]) -> None:
        new = list(patterns)
        self._patterns += new
        self._send(b"".join(map(self.ask, new)))

    def messages(self) -> Iterator[list[Message]]:
        """What arrives and matches, until the broker closes."""
        while True:
            arrived, self._left = self.decode(self._left)
            matching = [m for m in arrived if any(self.wanted(p, m.topic) for p in self._patterns)]
            if matching:
                yield matching
            data = self._receive()
            if not data:
                return
            self._left += data

    def close(self) -> None:
        """Waits for the broker to close its side, which it does when it has read everything."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(READ_BYTES):
                pass
        except OSError as error:
            raise RemoteError(f"{self.address}: {error.strerror or error}, some messages may be lost") from error
        finally:
            self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._socket.close()

    def _send(self, data: bytes | bytearray) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise RemoteError(f"{self.address}: {error.strerror or error}") from error

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(READ_BYTES)
        except OSError as error:
            raise RemoteError(f"{self.address}: {error.strerror or error}") from error


def _open(address: Address, timeout: float) -> socket.socket:
    try:
        if address.scheme == "ipc":
            sock = _open_ipc(address.path)
        else:
            sock = socket.create_connection((address.host, address.port), timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        hint = "is a broker running there? start one with 'polycast serve', or name another with --at"
        raise RemoteError(f"cannot reach {address}: {error.strerror or error}", hint) from error
    sock.settimeout(None)
    return sock


def _open_ipc(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock
