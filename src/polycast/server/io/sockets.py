"""Sockets: listening, with errors that name the cure, their options, and sending."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
import termios
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from polycast.address import Address
from polycast.errors import StartError
from polycast.model import Buffer
from polycast.socket_files import remove_stale

BACKLOG = 4096
KEEPALIVE_IDLE_SECONDS = 60
KEEPALIVE_INTERVAL_SECONDS = 15
KEEPALIVE_PROBES = 4
BLOCKS_AT_MOST = 1024
"""Blocks of one call to send: IOV_MAX."""
UNAUTHORIZED_RECEIVE_BYTES, FIRST_RECEIVE_BYTES = 16 * 1024, 1024 * 1024
"""The receive buffer of a TLS peer before it has rights, and directly after."""
SO_BUF_LOCK = 72
"""A socket option of Linux 5.16 and later, missing in Python's `socket`. 0: the system sizes the buffers."""


def listen(name: str, address: Address) -> list[socket.socket]:
    try:
        if address.scheme == "ipc":
            return [_listen_ipc(address)]
        return _listen_tcp(address)
    except OSError as error:
        raise StartError(
            f"cannot listen for {name} on {address}: {_reason(error)}", _cure(name, address, error)
        ) from error


def real_address(address: Address, sock: socket.socket) -> Address:
    if address.scheme == "ipc":
        return Address("ipc", path=address.path)
    host, port = sock.getsockname()[:2]
    return Address(address.scheme, host, port)


def _listen_tcp(address: Address) -> list[socket.socket]:
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    port = address.port
    for family, kind, protocol, _, address_info in infos:
        sock = socket.socket(family, kind, protocol)
        sockets.append(sock)
        try:
            _prepare(sock)
            sock.bind((address_info[0], port, *address_info[2:]))
            sock.listen(BACKLOG)
        except OSError:
            for opened in sockets:
                opened.close()
            raise
        port = sock.getsockname()[1]
    return sockets


def _prepare(sock: socket.socket) -> None:
    """Set on the listening socket; accepted sockets inherit the options."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    set_keepalive(sock)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)


def set_keepalive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):  # not available on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def limit_receive_buffer(sock: socket.socket) -> None:
    """Shrink the receive buffer of the system for a TLS peer.

    Below TLS, a read takes all bytes that the system has, and allocates that much memory, whatever the session
    can use.
    """
    with suppress(OSError):  # the peer has disconnected already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNAUTHORIZED_RECEIVE_BYTES)


def limit_read_ahead(transport: Any) -> None:
    """Limit what TLS reads ahead of the session."""
    transport.set_read_buffer_limits(UNAUTHORIZED_RECEIVE_BYTES)


def restore_receive_buffers(transport: Any) -> None:
    """Undo both limits: TLS uses its default, and the system sizes its buffer, or gives all that it allows."""
    transport.set_read_buffer_limits()
    sock = transport.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FIRST_RECEIVE_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, SO_BUF_LOCK, 0)


def send_large(transport: asyncio.Transport, blocks: Sequence[Buffer]) -> Sequence[Buffer]:
    """Send what the system takes at once, and return the rest, for the transport.

    A transport keeps the interpreter while it sends. For large blocks that is so long that the threads of the log
    wait most of their time.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("ssl_object") is not None:
        return blocks
    if transport.is_closing() or transport.get_write_buffer_size():
        return blocks
    try:
        sent = os.writev(sock.fileno(), blocks[:BLOCKS_AT_MOST])
    except OSError:  # the system takes nothing at present, or the transport finds out that the connection is lost
        return blocks
    return _behind(blocks, sent)


def _behind(blocks: Sequence[Buffer], sent: int) -> Sequence[Buffer]:
    for index, block in enumerate(blocks):
        if sent < len(block):
            return [memoryview(block)[sent:], *blocks[index + 1 :]]
        sent -= len(block)
    return ()


def unacknowledged(sock: socket.socket | None) -> int:
    """The bytes in the kernel's send queue that the peer's system has not acknowledged; 0 if unknown."""
    if sock is None:
        return 0
    left = array("i", [0])
    try:
        fcntl.ioctl(sock, termios.TIOCOUTQ, left)
    except (OSError, ValueError):  # closed, or not supported
        return 0
    return left[0]


def _listen_ipc(address: Address) -> socket.socket:
    path = Path(address.path)
    remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        if mode := address.options.get("mode"):  # by default the umask leaves it to this account
            _set_mode(path, int(mode, 8))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _set_mode(path: Path, mode: int) -> None:
    """Sets the mode of the socket file itself, never of a file that was linked in its place since `bind`."""
    if not hasattr(os, "O_PATH"):  # not Linux
        path.chmod(mode, follow_symlinks=False)
        return
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise OSError(errno.EADDRINUSE, "another file took its place")
        Path(f"/proc/self/fd/{handle}").chmod(mode)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)


def _cure(name: str, address: Address, error: OSError) -> str:
    if address.scheme == "ipc" and error.errno in (errno.EADDRINUSE, errno.ENOENT):
        used = error.errno == errno.EADDRINUSE
        return "another program listens there, or the file is not a socket" if used else "the folder must exist"
    if error.errno == errno.EADDRINUSE:
        return f"another program listens there; --listen {name}=tcp://HOST:PORT opens only the listeners named"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "ports below 1024 need privileges, a socket file needs a writable folder"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return "the host must be an address of this machine; 0.0.0.0 means all of them"
    return ""
