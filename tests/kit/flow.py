"""Background senders and readers, and the memory of a process."""

from __future__ import annotations

import threading
from pathlib import Path

from kit.wire import GUARD_SECONDS, Peer, wait_for

KIB = 1024
MIB = 1024 * KIB
CHUNK_BYTES = 64 * KIB
STABLE_LOOKS = 40


class Sending:
    """Sends in a thread, as fast as the other end takes it."""

    def __init__(self, peer: Peer, data: bytes) -> None:
        self._peer = peer
        self._data = data
        self.sent = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        try:
            for begin in range(0, len(self._data), CHUNK_BYTES):
                chunk = self._data[begin : begin + CHUNK_BYTES]
                self._peer.socket.sendall(chunk)
                self.sent += len(chunk)
        except OSError:
            return  # `done` reports it

    @property
    def done(self) -> bool:
        return self.sent == len(self._data)

    def wait_until_held_up(self) -> None:
        wait_until_held_up([self])

    def finish(self) -> None:
        self._thread.join(GUARD_SECONDS)
        assert self.done, f"{self.sent:,} of {len(self._data):,} bytes were taken"


def wait_until_held_up(sendings: list[Sending]) -> None:
    """Until all is sent or nothing more is taken. A slow machine can only make the test weaker, not fail."""
    looks: list[list[int]] = []

    def held_up() -> bool:
        looks.append([sending.sent for sending in sendings])
        stable = len(looks) > STABLE_LOOKS and all(look == looks[-1] for look in looks[-STABLE_LOOKS:])
        return stable or all(sending.done for sending in sendings)

    wait_for(held_up, "the senders to be done or held up")


class Reading:
    """Reads a number of bytes in a thread, which may be slower than the broker sends."""

    def __init__(self, peer: Peer, size: int) -> None:
        self._peer = peer
        self._size = size
        self._read = bytearray(peer.read)
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        try:
            while len(self._read) < self._size and (more := self._peer.socket.recv(MIB)):
                self._read += more
        except OSError:
            return  # `finish` reports it

    def finish(self) -> bytes:
        self._thread.join(GUARD_SECONDS)
        return bytes(self._read)


def resident_bytes(pid: int, line: str = "VmRSS") -> int:
    """What the process has in memory now; `VmHWM`: at most so far."""
    for entry in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = entry.partition(":")
        if name == line:
            return int(value.split()[0]) * KIB
    raise AssertionError(f"no {line} in /proc/{pid}/status")
