"""The folder `quarantine/`: damaged files as they were found, and a record of the offsets that they lost.

NAME.arrows             a damaged segment
NAME.arrows.lost.json   the offsets of that segment that are in no other file: a list of gaps
NAME.BYTE.tail          an unfinished group, cut off at that byte of the segment
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from polycast.log.files.disk import Disk
from polycast.log.files.format import Gap

log = logging.getLogger("polycast.log")

QUARANTINE = "quarantine"
LOST = ".lost.json"


def quarantine(path: Path, copy: bool = False) -> Path:
    """Moves or copies a damaged file into the quarantine. Overwrites nothing."""
    folder = path.parent / QUARANTINE
    folder.mkdir(exist_ok=True)
    target = folder / path.name
    number = 0
    while target.exists():
        number += 1
        target = folder / f"{path.stem}.{number}{path.suffix}"
    if copy:
        target.write_bytes(path.read_bytes())
    else:
        path.rename(target)
    return target


def quarantine_tail(path: Path, tail: bytes, position: int) -> Path:
    """Saves the bytes that are about to be cut off a segment at that position."""
    folder = path.parent / QUARANTINE
    folder.mkdir(exist_ok=True)
    target = folder / f"{path.stem}.{position}.tail"
    target.write_bytes(tail)
    return target


def write_lost(quarantined: Path, gaps: list[Gap], disk: Disk) -> None:
    disk.replace(quarantined.with_name(quarantined.name + LOST), msgspec.json.encode(gaps))


def read_lost(folder: Path) -> list[Gap]:
    """All recorded losses of the log in this folder."""
    gaps: list[Gap] = []
    for path in sorted((folder / QUARANTINE).glob(f"*{LOST}")):
        try:
            gaps += msgspec.json.decode(path.read_bytes(), type=list[Gap])
        except (OSError, msgspec.DecodeError) as error:
            log.error("%s: %s", path, error)
    return gaps
