"""inproc: names instead of addresses, within one process. A pipe is a pair of connected sockets.

Used by the background thread only.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable

Accept = Callable[[socket.socket], Awaitable[object]]

_names: dict[str, Accept] = {}
_waiting: dict[str, asyncio.Event] = {}


def bind(name: str, accept: Accept) -> None:
    if name in _names:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"inproc://{name}")
    _names[name] = accept
    if name in _waiting:
        _waiting.pop(name).set()


def unbind(name: str) -> None:
    del _names[name]


async def dial(name: str) -> socket.socket:
    """Waits until a socket is bound to the name."""
    while name not in _names:
        await _waiting.setdefault(name, asyncio.Event()).wait()
    near, far = socket.socketpair()
    try:
        await _names[name](far)
    except BaseException:
        near.close()
        raise
    return near
