"""What is good of a damaged hot segment.

The file is copied to the quarantine as it is, and what was lost is written down beside it. The groups before the
damage stay under the old name. Each stretch of groups behind damage becomes a segment of its own, named by its
first offset. Groups are moved as the bytes they are, so that they go on proving themselves.
"""

from __future__ import annotations

import filecmp
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from polycast.errors import LogDamageError
from polycast.log.files.disk import DISK, TEMPORARY, Disk
from polycast.log.files.folder import HOT, QUARANTINE, first_of, name_of, quarantine, segments
from polycast.log.files.format import SCHEMA, Gap, Layout
from polycast.log.files.hot import CHUNK_BYTES, Group, HotReader
from polycast.log.files.state import read_state

log = logging.getLogger("polycast.log")

LOST = ".lost.json"
"""Behind the name of a file in quarantine: what of it is nowhere else."""


class Damage(NamedTuple):
    """Bytes that are no group, and the offsets that are missing there."""

    position: int
    first: int
    next: int | None
    """None if no group follows."""
    reason: str

    @property
    def torn(self) -> bool:
        """Whether it may be what somebody was writing when he was stopped."""
        return self.next is None


def walk(reader: HotReader, first: int) -> Iterator[Group | Damage]:
    """Every group that is right, and the damage between them. `first` is the offset that is expected first."""
    while True:
        reason = ""
        try:
            for group in reader.groups():
                first = group.stamp.next
                yield group
        except LogDamageError as error:
            reason = str(error)
        position = reader.position
        stamp = reader.find(first)
        if not reason and not stamp:
            return
        if not reason and not reader.ends_at(position):
            reader.position = position  # somebody has written more, meanwhile
            continue
        reason = reason or f"{reader.path}, byte {position:,}: nothing is there, and groups follow behind it"
        yield Damage(position, first, stamp.first if stamp else None, reason)
        if not stamp:
            return


def has_groups_behind(path: Path) -> bool:
    """Whether there is damage, and groups that are right behind it."""
    reader = open_damaged(path)
    if reader is None:
        return False
    damaged = reader.stands_in
    try:
        for found in walk(reader, first_of(path) or 0):
            if damaged and isinstance(found, Group):
                return True
            damaged = damaged or isinstance(found, Damage)
    finally:
        reader.close()
    return False


def open_damaged(path: Path) -> HotReader | None:
    """A reader even where the beginning of the file cannot be read, if the seed is known from elsewhere."""
    try:
        return HotReader(path)
    except LogDamageError:
        state = read_state(path.parent)
        return HotReader(path, Layout.of(SCHEMA, int(state.seed, 16))) if state else None


# -- salvage ---------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
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
        _tell(path, aside, [Damage(0, first_of(path) or 0, None, f"{path}: its beginning cannot be read")], disk)
        path.unlink()
        return []
    try:
        stretches, damage = _survey(reader, first_of(path) or 0)
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


def _survey(reader: HotReader, first: int) -> tuple[list[Stretch], list[Damage]]:
    stretches: list[Stretch] = []
    damage: list[Damage] = []
    for found in walk(reader, first):
        if isinstance(found, Damage):
            damage.append(found)
            continue
        end = found.position + found.stamp.size
        if stretches and stretches[-1].end == found.position:
            stretches[-1] = stretches[-1]._replace(end=end, next=found.stamp.next)
        else:
            stretches.append(Stretch(found.position, end, found.stamp.first, found.stamp.next))
    return stretches, damage


def _target(path: Path, stretch: Stretch, layout: Layout) -> Path:
    at_the_beginning = stretch.start == len(layout.head)
    return path if at_the_beginning else path.with_name(name_of(stretch.first, HOT))


def _copy(path: Path, stretch: Stretch, layout: Layout, target: Path, disk: Disk) -> None:
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
    disk.replace(aside.with_name(aside.name + LOST), msgspec.json.encode(lost))


def read_lost(folder: Path) -> list[Gap]:
    """What salvage could not save, as far as it was written down."""
    gaps: list[Gap] = []
    for path in sorted((folder / QUARANTINE).glob(f"*{LOST}")):
        try:
            gaps += msgspec.json.decode(path.read_bytes(), type=list[Gap])
        except (OSError, msgspec.DecodeError) as error:
            log.error("%s: %s", path, error)
    return gaps
