"""Salvage of a damaged hot segment.

The file is copied to the quarantine, with a record of the lost offsets. The groups before the damage keep the name
of the segment. Each range of groups behind damage becomes a segment of its own, named by its first offset. Groups
are copied as bytes, so that their checksums stay valid.
"""

from __future__ import annotations

import contextlib
import filecmp
import logging
import os
from pathlib import Path
from typing import NamedTuple

from polycast.errors import LogDamageError
from polycast.log.files.damage import Damage, open_damaged, walk
from polycast.log.files.disk import DISK, TEMPORARY, Disk
from polycast.log.files.folder import HOT, file_name, first_offset_of, segments
from polycast.log.files.format import LOST_TO_DAMAGE, Gap, Layout
from polycast.log.files.hot import CHUNK_BYTES, HotReader
from polycast.log.files.quarantine import QUARANTINE, quarantine, read_lost, write_lost
from polycast.log.read.gaps import outside, read_range

log = logging.getLogger("polycast.log")


class IntactRange(NamedTuple):
    """Groups without damage between them: their bytes and their offsets."""

    start: int
    end: int
    first: int
    next: int


def salvage(path: Path, disk: Disk = DISK) -> list[Path]:
    """The segments that replace the file. Can be retried after an OSError."""
    copy = copy_to_quarantine(path, disk)
    reader = open_damaged(path)
    if reader is None:
        _report(
            path,
            copy,
            [Damage(0, first_offset_of(path) or 0, None, f"{path}: the head of the file is damaged")],
            [],
            disk,
        )
        path.unlink()
        return []
    try:
        intact, damage, gaps = _find_intact(reader, first_offset_of(path) or 0)
        _report(path, copy, damage, gaps, disk)
        targets = [_target(path, range_, reader.layout) for range_ in intact]
        for range_, target in reversed(list(zip(intact, targets, strict=True))):
            _copy(path, range_, reader.layout, target, disk)
    finally:
        reader.close()
    if path not in targets:
        path.unlink()
    disk.sync_folder(path.parent)
    return targets


def copy_to_quarantine(path: Path, disk: Disk) -> Path:
    """Copies the file once, also if salvage is retried."""
    for there in (path.parent / QUARANTINE).glob(f"{path.stem}*{path.suffix}"):
        if filecmp.cmp(path, there, shallow=False):
            return there
    copy = quarantine(path, copy=True)
    fd = os.open(copy, os.O_RDONLY)
    try:
        disk.sync(fd)
    finally:
        os.close(fd)
    disk.sync_folder(copy.parent)
    disk.sync_folder(path.parent)
    return copy


def gaps_beside(path: Path, reason: str) -> list[Gap]:
    """The gaps that other files record: the quarantine, and the next segment. They end the loss of this segment.

    `reason`: of the loss itself, which an interrupted attempt may have recorded."""
    first = first_offset_of(path) or 0
    following = next((segment for segment in segments(path.parent) if segment.first > first), None)
    recorded = [gap for gap in read_lost(path.parent) if gap.reason != reason]
    with contextlib.suppress(LogDamageError, FileNotFoundError):
        recorded += read_range(following).gaps if following else ()
    return recorded


def _find_intact(reader: HotReader, first: int) -> tuple[list[IntactRange], list[Damage], list[Gap]]:
    """The third: the gaps that the intact groups record."""
    intact: list[IntactRange] = []
    damage: list[Damage] = []
    gaps: list[Gap] = []
    for found in walk(reader, first):
        if isinstance(found, Damage):
            damage.append(found)
            continue
        if found.header.gap:
            gaps.append(found.header.gap)
        end = found.position + found.header.size
        if intact and intact[-1].end == found.position:
            intact[-1] = intact[-1]._replace(end=end, next=found.header.next)
        else:
            intact.append(IntactRange(found.position, end, found.header.first, found.header.next))
    return intact, damage, gaps


def _target(path: Path, range_: IntactRange, layout: Layout) -> Path:
    is_first = range_.start == len(layout.head)
    return path if is_first else path.with_name(file_name(range_.first, HOT))


def _copy(path: Path, range_: IntactRange, layout: Layout, target: Path, disk: Disk) -> None:
    temporary = target.with_name(target.name + TEMPORARY)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        disk.write(fd, layout.head, 0)
        written = len(layout.head)
        with path.open("rb") as source:
            source.seek(range_.start)
            while data := source.read(min(CHUNK_BYTES, range_.end - source.tell())):
                disk.write(fd, data, written)
                written += len(data)
        disk.sync(fd)
    finally:
        os.close(fd)
    disk.rename(temporary, target)


def _report(path: Path, copy: Path, damage: list[Damage], gaps: list[Gap], disk: Disk) -> None:
    """In the log file, and in the quarantine. `gaps`: those that the segment records."""
    reason = f"{LOST_TO_DAMAGE}{QUARANTINE}/{copy.name}"
    others = [*gaps, *gaps_beside(path, reason)]
    begins = [segment.first for segment in segments(path.parent) if segment.path != path]
    lost: list[Gap] = []
    for found in damage:
        later = (first for first in begins if first >= found.first)
        after = found.next if found.next is not None else min(later, default=None)
        log.critical("%s; offsets from %s up to %s are lost; the damaged file is %s", found.reason,
                     f"{found.first:,}", f"{after:,}" if after is not None else "its end", copy)  # fmt: skip
        if after is not None and after > found.first:
            lost += outside(Gap(found.first, after, reason), others)
    write_lost(copy, lost, disk)
