"""Addresses and pairs of sockets for these tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.wire import GUARD_SECONDS
from polycast.nanomsg import PUB, SUB, Socket

SCHEMES = ("tcp", "ipc", "ws", "inproc")
_numbers = itertools.count()


def place(scheme: str, folder: Path) -> str:
    """An unused address to bind to."""
    urls = {
        "tcp": "tcp://127.0.0.1:0",
        "ipc": f"ipc://{folder}/{next(_numbers)}",
        "ws": "ws://127.0.0.1:0/some/path",
        "inproc": f"inproc://{folder}/{next(_numbers)}",
    }
    return urls[scheme]


def join(pub: Socket, sub: Socket, url: str, binds: str = "pub") -> str:
    """Connects the two and returns the address."""
    listener, dialler = (pub, sub) if binds == "pub" else (sub, pub)
    real = listener.bind(url)
    dialler.connect(real)
    pub.wait_for_peers(1, GUARD_SECONDS)
    return real


@contextmanager
def pair(url: str, *topics: bytes) -> Iterator[tuple[Socket, Socket]]:
    with Socket(PUB) as pub, Socket(SUB) as sub:
        for topic in topics:
            sub.subscribe(topic)
        join(pub, sub, url)
        yield pub, sub


def port_of(url: str) -> int:
    return int(url.split("/")[2].rpartition(":")[2])


def open_files() -> int:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def take(sub: Socket, count: int) -> list[bytes]:
    return [sub.recv(GUARD_SECONDS) for _ in range(count)]
