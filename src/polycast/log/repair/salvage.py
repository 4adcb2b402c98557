"""What is good of a damaged hot segment.

The file is copied to the quarantine as it is, and what was lost is written down beside it. The groups before the
damage stay under the old name. Each stretch of groups behind damage becomes a segment of its own, named by its
first offset. Groups are moved as the bytes they are, so that they go on proving themselves.
"""

from __future__ import annotations

import filecmp
import logging
import os
from pathlib import Path
from typing import NamedTuple

from polycast.log.files.damage import Damage, open_damaged, walk
from polycast.log.files.disk import DISK, TEMPORARY, Disk
from polycast.log.files.folder import HOT, file_name, first_offset_of, segments
from polycast.log.files.format import Gap, Layout
from polycast.log.files.hot import CHUNK_BYTES, HotReader
from polycast.log.files.quarantine import QUARANTINE, quarantine, write_lost

log = logging.getLogger("polycast.log")


class IntactRange(NamedTuple):
    """Groups without damage between them: their bytes and their offsets."""

    start: int
    end: int
    first: int
    next: int


def salvage(path: Path, disk: Disk = DISK) -> list[Path]:
    """The segments that are there instead. After an OSError it can be tried again."""
    aside = _put_aside(path, disk)
    reader = open_damaged(path)
    if reader is None:
        _tell(
            path,
            aside,
            [Damage(0, first_offset_of(path) or 0, None, f"{path}: its beginning cannot be read")],
            disk,
        )
        path.unlink()
        return []
    try:
        stretches, damage = _survey(reader, first_offset_of(path) or 0)
        _tell(path, aside, damage, disk)
        targets = [_target(path, stretch, reader.layout) for stretch in stretches]
        for stretch, target in reversed(list(zip(stretches, targets, strict=True))):
            _copy(path, stretch, reader.layout, target, disk)
    finally:
        reader.close()
    if path not in targets:
        path.unlink()
    disk.sync_folder(path.parent)
    return targets


def _put_aside(path: Path, disk: Disk) -> Path:
    """The same file is put aside once, however often this is tried."""
    for there in (path.parent / QUARANTINE).glob(f"{path.stem}*{path.suffix}"):
        if filecmp.cmp(path, there, shallow=False):
            return there
    aside = quarantine(path, copy=True)
    fd = os.open(aside, os.O_RDONLY)
    try:
        disk.sync(fd)
    finally:
        os.close(fd)
    disk.sync_folder(aside.parent)
    disk.sync_folder(path.parent)
    return aside


def _survey(reader: HotReader, first: int) -> tuple[list[IntactRange], list[Damage]]:
    stretches: list[IntactRange] = []
    damage: list[Damage] = []
    for found in walk(reader, first):
        if isinstance(found, Damage):
            damage.append(found)
            continue
        end = found.position + found.header.size
        if stretches and stretches[-1].end == found.position:
            stretches[-1] = stretches[-1]._replace(end=end, next=found.header.next)
        else:
            stretches.append(IntactRange(found.position, end, found.header.first, found.header.next))
    return stretches, damage


def _target(path: Path, stretch: IntactRange, layout: Layout) -> Path:
    at_the_beginning = stretch.start == len(layout.head)
    return path if at_the_beginning else path.with_name(file_name(stretch.first, HOT))


def _copy(path: Path, stretch: IntactRange, layout: Layout, target: Path, disk: Disk) -> None:
    temporary = target.with_name(target.name + TEMPORARY)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        disk.write(fd, layout.head, 0)
        written = len(layout.head)
        with path.open("rb") as source:
            source.seek(stretch.start)
            while data := source.read(min(CHUNK_BYTES, stretch.end - source.tell())):
                disk.write(fd, data, written)
                written += len(data)
        disk.sync(fd)
    finally:
        os.close(fd)
    disk.rename(temporary, target)


def _tell(path: Path, aside: Path, damage: list[Damage], disk: Disk) -> None:
    """In the log file, and in the quarantine for those who come later."""
    begins = [segment.first for segment in segments(path.parent) if segment.path != path]
    lost = []
    for found in damage:
        later = (first for first in begins if first >= found.first)
        after = found.next if found.next is not None else min(later, default=None)
        log.critical("%s; lost are the offsets from %s on, up to %s; the file as it was is %s", found.reason,
                     f"{found.first:,}", f"{after:,}" if after is not None else "its end", aside)  # fmt: skip
        if after is not None and after > found.first:
            lost.append(Gap(found.first, after, f"lost to damage, see {QUARANTINE}/{aside.name}"))
    write_lost(aside, lost, disk)
