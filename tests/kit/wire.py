"""A peer on a bare socket."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

GUARD_SECONDS = 20.0
"""When a test is taken to hang. No test passes or fails by being faster or slower than this."""

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = GUARD_SECONDS) -> T:
    """Polls until the result is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError(f"waited in vain for {what}")


class Peer:
    def __init__(self, place: int | str, receive_bytes: int = 0, source: str = "") -> None:
        """`place` is a port of this machine, or a socket file; `source` the address to come from."""
        self.socket = socket.socket(socket.AF_UNIX) if isinstance(place, str) else socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(GUARD_SECONDS)
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(place if isinstance(place, str) else ("127.0.0.1", place))
        except OSError:
            self.socket.close()
            raise
        self.read = b""

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def shut(self) -> None:
        """Half-closes; ignores a connection that the peer has closed."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise

    def expect(self, data: bytes) -> None:
        """Exactly these bytes come next."""
        have = bytearray(self.read)
        right = data.startswith(self.read)
        while right and len(have) < len(data) and (more := self.socket.recv(65536)):
            right = data.startswith(more[: len(data) - len(have)], len(have))
            have += more
        self.read = bytes(have)
        assert self.read[: len(data)] == data, f"expected {data!r}, got {self.read!r}"
        self.read = self.read[len(data) :]

    def read_until(self, end: bytes) -> bytes:
        """Everything up to and with these bytes."""
        pieces, tail = [self.read], self.read
        while end not in tail:
            more = self.socket.recv(1 << 20)
            assert more, f"closed before {end!r} came; got {b''.join(pieces)!r}"
            pieces.append(more)
            tail = tail[max(0, len(tail) - len(end) + 1) :] + more  # it may come in two pieces
        self.read = b"".join(pieces)
        head, _, self.read = self.read.partition(end)
        return head + end

    def expect_closed(self) -> bytes:
        """Reads to the end, and says what came before it."""
        try:
            while more := self.socket.recv(1 << 20):
                self.read += more
        except ConnectionResetError:
            pass
        rest, self.read = self.read, b""
        return rest

    def close(self) -> None:
        self.socket.close()
