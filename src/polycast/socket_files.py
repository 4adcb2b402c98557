"""The files of listening Unix sockets: stale files go before a start, own files at the end."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

FileIdentity = tuple[int, int]


def remove_stale(path: Path) -> None:
    """Removes a socket file on which no process listens: an unclean stop left it."""
    if path.is_socket() and _is_stale(path):
        path.unlink()


def identity(path: Path) -> FileIdentity:
    """Identifies a file. Inode numbers are reused at once, so the change time is part of it."""
    found = path.stat()
    return found.st_ino, found.st_ctime_ns


def remove(path: Path, known: FileIdentity) -> None:
    """Removes the socket file, unless another process has replaced it."""
    with suppress(FileNotFoundError):
        if identity(path) == known:
            path.unlink()


def _is_stale(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False
