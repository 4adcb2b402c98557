"""The state file: whether the last stop was clean, and which offsets may have been used.

Only offsets below `reserved` are used, and `reserved` is durable before. After an unclean stop it is unknown which
of them were used: the log continues at `reserved`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from hashlib import sha256
from pathlib import Path

import msgspec

from polycast.errors import LogVersionError, StartError
from polycast.log.files.disk import Disk
from polycast.log.files.format import NOTHING_BEFORE, VERSION, Gap, StreamPosition

NAME = "state.json"
LOCK = ".lock"
LOCK_SECONDS = 0.5
"""How long to wait for `is_running` calls of other processes, which hold the lock for a moment."""
STATE_BYTES = 512
ID_DIGITS = 16
RESERVE = 1 << 22
"""Offsets reserved at a time; an unclean stop may skip as many."""
FULL = (errno.ENOSPC, errno.EDQUOT)


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    seed: str
    clean: bool
    next: int
    """The next offset, after a clean stop."""
    reserved: int
    checksum: str = NOTHING_BEFORE
    """Of the last group."""
    micros: int = 0
    """The time of the last message."""
    gap: Gap | None = None
    """A gap that no group records yet."""
    restored: str = ""
    """In a backup of a log that was not stopped: its time. The original may have used the reserved offsets."""
    position: StreamPosition | None = None
    """Only in the folder of a node: its position in the stream at its start, or after a clean stop."""


def log_id(seed: str) -> str:
    """The identity of a log: it survives a backup, a restore and a move.

    The seed itself stays secret: with it, a payload could be made to look like a group of the log.
    """
    return sha256(seed.encode()).hexdigest()[:ID_DIGITS]


class _Version(msgspec.Struct):
    version: int


def read_state(folder: Path) -> LogState | None:
    """None if it is missing or unreadable."""
    try:
        text = (folder / NAME).read_bytes()
        version = msgspec.json.decode(text, type=_Version).version
        if version > VERSION:
            raise LogVersionError(folder, version, VERSION)
        state = msgspec.json.decode(text, type=LogState)
        int(state.seed, 16)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None
    return state


def encode_state(state: LogState) -> bytes:
    return msgspec.json.format(msgspec.json.encode(state)).ljust(STATE_BYTES - 1) + b"\n"


def write_state(folder: Path, state: LogState, disk: Disk) -> None:
    """On a full disk, overwrites the file in place: its length is constant and fits one sector."""
    text = encode_state(state)
    try:
        disk.replace(folder / NAME, text)
    except OSError as error:
        if error.errno not in FULL or not (folder / NAME).exists():
            raise
        disk.overwrite(folder / NAME, text)


class FolderLock:
    """One broker per folder, for the life of the process."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take()
        except BlockingIOError as error:
            owner = os.pread(self._fd, 20, 0).decode(errors="replace").strip() or "another one"
            os.close(self._fd)
            text = f"the log in {folder} is in use by process {owner}"
            raise StartError(text, "--data DIR takes another folder") from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def _take(self) -> None:
        patience = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > patience:
                    raise
            time.sleep(0.01)

    def release(self) -> None:
        os.close(self._fd)


def is_running(folder: Path) -> bool:
    """Whether a broker uses the folder."""
    try:
        fd = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
