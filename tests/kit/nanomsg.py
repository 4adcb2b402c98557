"""PUB and SUB sockets by hand, over tcp, ipc and WebSocket; those that dial and those that are dialled."""

from __future__ import annotations

import base64
import hashlib
import select
import socket
import struct
from pathlib import Path
from types import TracebackType

from kit.frames import pub
from kit.room import Room
from kit.wire import GUARD_SECONDS, Peer, wait_for

PUB = bytes.fromhex("00 53 50 00 00 20 00 00")
SUB = bytes.fromhex("00 53 50 00 00 21 00 00")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
WORDS = (PUB, SUB, b"\0" * 7 + b"\3", b"\0" * 7 + b"\x18", b"\x01", b"a|b", b"|", b"\xff" * 8)
"""Headers, sizes and parts of bodies to make noise of."""


def message(body: bytes) -> bytes:
    return struct.pack(">Q", len(body)) + body


def typed(body: bytes) -> bytes:
    """As over ipc."""
    return b"\x01" + message(body)


class FilePeer(Peer):
    """A peer over ipc."""

    def __init__(self, path: Path | str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(GUARD_SECONDS)
        self.socket.connect(str(path))
        self.read = b""


class TakenPeer(Peer):
    """The end of a connection that somebody made to us."""

    def __init__(self, taken: socket.socket) -> None:
        self.socket = taken
        self.socket.settimeout(GUARD_SECONDS)
        self.read = b""


def publish_until_received(room: Room, *peers: Peer, name: str = "heard?") -> None:
    """Publishes until something has come to all of these peers."""
    publisher = room.simplest()

    def received() -> bool:
        room.send_commands(publisher, pub(name))
        return all(peer.read or select.select([peer.socket], [], [], 0)[0] for peer in peers)

    wait_for(received, "the peers to receive")


class Listening:
    """A socket by hand that waits for the broker to dial: `with Listening() as place: place.accept()`."""

    def __init__(self, address: str = "tcp://127.0.0.1:0") -> None:
        self.scheme, _, self._place = address.partition("://")

    def __enter__(self) -> Listening:
        if self.scheme == "ipc":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(self._place)
            self._socket.listen()
            self.address = f"ipc://{self._place}"
        else:
            host, _, port = self._place.partition("/")[0].rpartition(":")
            self._socket = socket.create_server((host, int(port)))
            path = self._place.partition("/")[2]
            self.address = f"{self.scheme}://{host}:{self._socket.getsockname()[1]}" + (path and "/" + path)
        self._socket.settimeout(GUARD_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        if self.scheme == "ipc":
            Path(self._place).unlink()

    def accept(self) -> TakenPeer:
        return TakenPeer(self._socket.accept()[0])

    def accept_websocket(self, protocol: str, agreed: str = "") -> TakenPeer:
        """Takes a WebSocket that is asked for with this sub-protocol, and agrees to that, or to another one."""
        peer = self.accept()
        requested = peer.read_until(b"\r\n\r\n").decode().split("\r\n")
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in requested[1:])
        }
        path = self.address.removeprefix("ws://").partition("/")[2]
        assert requested[0] == f"GET /{path} HTTP/1.1"
        assert fields["sec-websocket-protocol"] == protocol
        accepted = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + GUID).digest()).decode()
        peer.send(to_response(accepted, agreed or protocol))
        return peer


def to_response(accepted: str, protocol: str) -> bytes:
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accepted}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ).encode()


def read_masked(peer: Peer) -> tuple[int, bytes]:
    """The first byte and the payload of the next short frame, which must have a mask."""

    def take(size: int) -> bytes:
        while len(peer.read) < size:
            more = peer.socket.recv(65536)
            assert more, "closed inside a frame"
            peer.read += more
        head, peer.read = peer.read[:size], peer.read[size:]
        return head

    first, second = take(2)
    assert second & 0x80, "a frame without a mask"
    size = struct.unpack(">H", take(2))[0] if second & 0x7F == 126 else second & 0x7F
    mask, body = take(4), take(size)
    return first, bytes(byte ^ mask[i % 4] for i, byte in enumerate(body))
