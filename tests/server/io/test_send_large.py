"""Large blocks are sent past the transport, which gets what the system does not take."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from polycast.model import Buffer
from polycast.server.io.sockets import BLOCKS_AT_MOST, send_large

Pair = tuple[socket.socket, socket.socket]


class Plain:
    """In place of a transport."""

    def __init__(
        self, sock: socket.socket, buffered: int = 0, closing: bool = False, secure: bool = False
    ) -> None:
        self.extra = {"socket": sock, "ssl_object": object() if secure else None}
        self.buffered, self.closing = buffered, closing

    def get_extra_info(self, name: str) -> Any:
        return self.extra[name]

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def is_closing(self) -> bool:
        return self.closing


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


def send(sock: socket.socket, blocks: Sequence[Buffer], **more: Any) -> list[bytes]:
    transport: Any = Plain(sock, **more)
    return [bytes(block) for block in send_large(transport, blocks)]


def received(sock: socket.socket) -> bytes:
    parts = []
    while True:
        try:
            parts.append(sock.recv(1 << 20))
        except BlockingIOError:
            return b"".join(parts)


def test_everything_is_sent(pair: Pair) -> None:
    assert send(pair[0], [b"one", bytearray(b"two"), memoryview(b"-three-")[1:-1], b""]) == []
    assert received(pair[1]) == b"onetwothree"


@pytest.mark.parametrize("size", [1, 1000, 100_000, 1 << 20])
def test_the_rest_continues_where_the_system_stopped(pair: Pair, size: int) -> None:
    blocks: list[Buffer] = [os.urandom(size) for _ in range((4 << 20) // size if size > 1 else 100)]
    rest = send(pair[0], blocks)
    assert received(pair[1]) + b"".join(rest) == b"".join(blocks)
    assert all(rest) and len(rest) <= len(blocks)


def test_more_blocks_than_one_call_takes(pair: Pair) -> None:
    blocks = [b"%04d" % number for number in range(BLOCKS_AT_MOST + 10)]
    assert send(pair[0], blocks) == blocks[BLOCKS_AT_MOST:]
    assert received(pair[1]) == b"".join(blocks[:BLOCKS_AT_MOST])


def test_a_full_socket_takes_nothing(pair: Pair) -> None:
    while send(pair[0], [bytes(1 << 16)]) == []:
        pass
    while len(send(pair[0], [b"x"])) == 0:
        pass
    assert send(pair[0], [b"more", b"blocks"]) == [b"more", b"blocks"]


def test_a_lost_connection_is_left_to_the_transport(pair: Pair) -> None:
    pair[1].close()
    assert send(pair[0], [b"late"]) == [b"late"]


@pytest.mark.parametrize("state", [{"buffered": 1}, {"closing": True}, {"secure": True}])
def test_nothing_overtakes_the_transport(pair: Pair, state: dict[str, Any]) -> None:
    """Bytes that it has not sent yet, and TLS, which it does itself."""
    assert send(pair[0], [b"later"], **state) == [b"later"]
    assert received(pair[1]) == b""
