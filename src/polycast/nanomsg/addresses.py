"""Addresses of sockets, their system sockets, and socket files."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from polycast.address import SECURE, Address, parse_address
from polycast.errors import UsageError
from polycast.socket_files import remove_stale

BACKLOG = 4096
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Seconds, seconds, probes. A SUB never sends, so it would not notice a dead publisher host."""
INPROC = "inproc://"
ADDRESS_SYNTAX = "write tcp://HOST:PORT, ipc:///path, ws://HOST:PORT/path or inproc://NAME"
ANY = "*"
"""All addresses of this machine, as nanomsg writes it."""


def parse(url: str) -> Address:
    if url.startswith(INPROC):
        return Address("inproc", path=url.removeprefix(INPROC))
    try:
        address = parse_address(url)
    except UsageError as error:
        raise UsageError(str(error), ADDRESS_SYNTAX) from error
    if address.scheme in SECURE:
        raise UsageError(f"{url!r}: sockets do not support TLS", ADDRESS_SYNTAX)
    if address.options:
        raise UsageError(f"{url!r}: sockets take no options behind a '?'", "name them when you make the Socket")
    return address


def listen(address: Address) -> tuple[socket.socket, Address]:
    """The listening socket, and its real address."""
    if address.scheme == "ipc":
        return _listen_ipc(address.path), address
    host = None if address.host == ANY else address.host
    family, kind, protocol, _, target = socket.getaddrinfo(
        host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _bind(listening, target)
    return listening, replace(address, host=listening.getsockname()[0], port=listening.getsockname()[1])


def _listen_ipc(path: str) -> socket.socket:
    remove_stale(Path(path))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _bind(listening, path)
    return listening


def _bind(listening: socket.socket, target: Any) -> None:
    try:
        listening.bind(target)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise


def keep_alive(connected: socket.socket) -> None:
    if connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option):  # not on every system
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
