"""A WebSocket client written by hand: its handshake, its frames, and what it reads.

with WebSocket(broker.ports["http"], "/ubre") as socket:
    socket.send_text('{"subscribe": "orders"}')
    socket.flush()
    socket.expect_text('{"publish": "orders"}')
"""

from __future__ import annotations

import base64
import hashlib
from types import TracebackType
from typing import NamedTuple

from kit.wire import Peer

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = base64.b64encode(hashlib.sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
MASK = b"\x37\xfa\x21\x3d"
FIN = 0x80


class Frame(NamedTuple):
    opcode: int
    payload: bytes
    final: bool = True


def upgrade(
    path: str = "/ubre", protocol: str = "", version: str = "13", key: bytes = KEY, extra: str = ""
) -> bytes:
    """The request for a WebSocket. `extra` are whole lines, each with its CRLF."""
    offer = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
    return (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: {version}\r\n{offer}{extra}\r\n"
    ).encode()


def welcome(protocol: str = "") -> bytes:
    """The response to that request, byte for byte."""
    taken = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
    return (
        f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {ACCEPT.decode()}\r\n{taken}\r\n"
    ).encode()


def frame(opcode: int, payload: bytes = b"", final: bool = True, mask: bytes = MASK, reserved: int = 0) -> bytes:
    """A frame as a client sends it; with no mask, as a server does."""
    first = (FIN if final else 0) | reserved | opcode
    bit = 0x80 if mask else 0
    size = len(payload)
    if size < 126:
        head = bytes([first, bit | size])
    elif size < 65536:
        head = bytes([first, bit | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, bit | 127]) + size.to_bytes(8, "big")
    return head + mask + (masked(payload, mask) if mask else payload)


def masked(payload: bytes, mask: bytes) -> bytes:
    repeated = mask * (len(payload) // 4 + 1)
    return bytes(a ^ b for a, b in zip(payload, repeated, strict=False))


def close_frame(code: int, reason: bytes = b"", mask: bytes = MASK) -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason, mask=mask)


def read_frames(data: bytes) -> tuple[list[Frame], bytes]:
    """All whole frames without a mask, and what is left."""
    found: list[Frame] = []
    while (one := _read_frame(data)) is not None:
        found.append(one[0])
        data = data[one[1] :]
    return found, data


def _read_frame(data: bytes) -> tuple[Frame, int] | None:
    if len(data) < 2:
        return None
    assert data[0] & 0x70 == 0, f"reserved bits in {data[:2]!r}"
    assert data[1] & 0x80 == 0, f"a mask from the broker in {data[:2]!r}"
    size, start = data[1], 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(data) < start:
            return None
        size = int.from_bytes(data[2:start], "big")
        assert size >= (126 if start == 4 else 65536), "a length that is not as short as can be"
    if len(data) < start + size:
        return None
    return Frame(data[0] & 15, data[start : start + size], data[0] & FIN != 0), start + size


class WebSocket(Peer):
    def __init__(
        self, port: int, path: str = "/ubre", protocol: str = "", taken: str = "", receive_bytes: int = 0
    ) -> None:
        """`taken` is the sub-protocol that the broker is expected to take, where that is not all of them."""
        super().__init__(port, receive_bytes)
        self._pings = 0
        self.send(upgrade(path, protocol))
        self.expect(welcome(taken or protocol))

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send_text(self, text: str) -> None:
        self.send(frame(TEXT, text.encode()))

    def send_binary(self, payload: bytes) -> None:
        self.send(frame(BINARY, payload))

    def read_frame(self) -> Frame:
        while (one := _read_frame(self.read)) is None:
            more = self.socket.recv(1 << 20)
            assert more, f"closed before a frame was whole; got {self.read!r}"
            self.read += more
        self.read = self.read[one[1] :]
        return one[0]

    def expect_frame(self, opcode: int, payload: bytes) -> None:
        assert self.read_frame() == Frame(opcode, payload)

    def expect_text(self, text: str) -> None:
        self.expect_frame(TEXT, text.encode())

    def expect_binary(self, payload: bytes) -> None:
        self.expect_frame(BINARY, payload)

    def flush(self) -> None:
        """Whatever was sent has been handled; nothing but the reply to a ping may have come."""
        self._pings += 1
        number = b"%d" % self._pings
        self.send(frame(PING, number))
        self.expect_frame(PONG, number)

    def expect_close(self, code: int) -> str:
        """The broker says goodbye with this code, and closes; its reason."""
        last = self.read_frame()
        assert last.opcode == CLOSE, f"expected a close frame, got {last!r}"
        assert int.from_bytes(last.payload[:2], "big") == code, last.payload
        assert self.expect_closed() == b""
        return last.payload[2:].decode()
