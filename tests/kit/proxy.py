"""A proxy that simulates a bad network: it cuts, stalls and drips."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from kit.wire import wait_for

CHUNK_BYTES = 65536
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing sends a reset, as a cable that was pulled and put back would get."""


class Proxy:
    """`with Proxy(port) as proxy: Peer(proxy.port)`. What went through is in `to_target` and `from_target`."""

    def __init__(self, target_port: int, keep: bool = True) -> None:
        self._target_port = target_port
        self._keep = keep
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._is_cut = False
        self._chunk = CHUNK_BYTES
        self.to_target = bytearray()
        self.from_target = bytearray()

    def __enter__(self) -> Proxy:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    # -- what a network does -----------------------------------------------------------------------------

    def cut(self) -> None:
        """Resets every connection; new ones are reset at once, until `restore`."""
        with self._lock:
            self._is_cut = True
            pairs, self._pairs = self._pairs, []
            self.forget()
        for pair in pairs:
            for side in pair:
                _reset(side)
        self._flowing.set()

    def restore(self) -> None:
        with self._lock:
            self._is_cut = False

    def stall(self) -> None:
        """Carries nothing in either direction; what is sent waits."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def drip(self) -> None:
        """Carries one byte at a time from here on."""
        self._chunk = 1

    def forget(self) -> None:
        """What went through up to now."""
        self.to_target.clear()
        self.from_target.clear()

    def wait_until_carried(self, text: bytes, both_ways: bool = False) -> None:
        """Until this text has gone to the target, or if need be to and from it."""
        wait_for(lambda: text in self.to_target, f"{text!r} on its way to the target")
        if both_ways:
            wait_for(lambda: text in self.from_target, f"{text!r} on its way back")

    # -- the threads -------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listening.accept()[0]
            except OSError:
                return
            with self._lock:
                far = None if self._is_cut else _dial(self._target_port)
                if far is not None:
                    self._pairs.append((near, far))
            if far is None:
                _reset(near)
                near.close()
                continue
            self._start(self._pump, near, far, self.to_target)
            self._start(self._pump, far, near, self.from_target)

    def _pump(self, source: socket.socket, sink: socket.socket, seen: bytearray) -> None:
        """Each thread closes the side that it reads from."""
        with source, suppress(OSError):
            while data := source.recv(self._chunk):
                self._flowing.wait()
                sink.sendall(data)
                if self._keep:
                    seen += data
            sink.shutdown(socket.SHUT_WR)


def _dial(port: int) -> socket.socket | None:
    try:
        far = socket.create_connection(("127.0.0.1", port))
    except OSError:
        return None
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return far


def _reset(side: socket.socket) -> None:
    with suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        side.shutdown(socket.SHUT_RDWR)
