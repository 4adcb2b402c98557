"""Salvage of a damaged sealed segment: its readable row groups stay, under the same name.

The damaged file is copied to the quarantine first, with a record of the lost offsets. The new file has the digests
of the old one for the rows that stay, and records the lost ones as gaps. A file without any readable row group is
moved to the quarantine. A stop in between leaves the damaged file, and the next attempt repeats the work.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from polycast.errors import LogDamageError
from polycast.log.files.disk import DISK, TEMPORARY, Disk
from polycast.log.files.format import LOST_TO_DAMAGE, Gap
from polycast.log.files.quarantine import QUARANTINE, write_lost
from polycast.log.files.sealed import RowGroup, SealedReader, SegmentMetadata, content_of, to_key_values
from polycast.log.read.gaps import outside
from polycast.log.repair.salvage import copy_to_quarantine, gaps_beside
from polycast.log.upkeep.sealing import SegmentSink, check_file, to_writer

log = logging.getLogger("polycast.log")


def reseal(path: Path, after: int, disk: Disk = DISK) -> list[Gap]:
    """The lost offsets; empty if every row can be read. `after`: the first offset of the next segment.

    Raises OSError, and leaves the segment as it was.
    """
    first = int(path.stem)
    try:
        reader = SealedReader(path)
    except LogDamageError as error:
        return _give_up(path, Gap(first, after, str(error)), disk)
    with reader:
        damage = _find_damage(reader)
        if not damage:
            return []
        copy = copy_to_quarantine(path, disk)
        lost = _report(path, copy, damage, reader.metadata.gaps, disk)
        readable = _readable(reader.metadata, damage)
        if readable:
            _write(reader, readable, lost, path, disk)
    if not readable:
        path.unlink()
        disk.sync_folder(path.parent)
    return lost


def _give_up(path: Path, damage: Gap, disk: Disk) -> list[Gap]:
    lost = _report(path, copy_to_quarantine(path, disk), [damage], [], disk)
    path.unlink()
    disk.sync_folder(path.parent)
    return lost


def _find_damage(reader: SealedReader) -> list[Gap]:
    """A row group that cannot be read is damaged, and so are the offsets of its rows."""
    found = []
    for number, row_group in enumerate(reader.metadata.row_groups):
        try:
            reader.read(number)
        except LogDamageError as error:
            found.append(Gap(row_group.first, row_group.next, str(error)))
    return found


def _report(path: Path, copy: Path, damage: list[Gap], gaps: list[Gap], disk: Disk) -> list[Gap]:
    """`gaps`: those that the segment records."""
    reason = f"{LOST_TO_DAMAGE}{QUARANTINE}/{copy.name}"
    others = [*gaps, *gaps_beside(path, reason)]
    damage = [part for gap in damage for part in outside(gap, others)]
    for gap in damage:
        log.critical("%s; offsets from %s up to %s are lost; the damaged file is %s", gap.reason,
                     f"{gap.first:,}", f"{gap.next:,}", copy)  # fmt: skip
    lost = [replace(gap, reason=reason) for gap in damage]
    write_lost(copy, lost, disk)
    return lost


def _readable(metadata: SegmentMetadata, damage: list[Gap]) -> list[int]:
    firsts = {gap.first for gap in damage}
    return [number for number, group in enumerate(metadata.row_groups) if group.first not in firsts]


def _write(reader: SealedReader, readable: list[int], lost: list[Gap], path: Path, disk: Disk) -> None:
    temporary = path.with_name(path.name + TEMPORARY)
    sink = SegmentSink(temporary, disk)
    try:
        with to_writer(pa.PythonFile(sink, mode="w"), page_checksums=True) as writer:
            for number in readable:
                writer.write_table(pa.Table.from_batches([reader.read(number)]))
            groups = [reader.metadata.row_groups[number] for number in readable]
            writer.add_key_value_metadata(to_key_values(_to_metadata(reader.metadata, groups, lost)))
        sink.sync()
        check_file(temporary)
        disk.rename(temporary, path)
    finally:
        sink.release()
        temporary.unlink(missing_ok=True)


def _to_metadata(before: SegmentMetadata, groups: list[RowGroup], lost: list[Gap]) -> SegmentMetadata:
    return replace(
        before,
        count=sum(group.count for group in groups),
        gaps=sorted([*before.gaps, *lost], key=lambda gap: gap.first),
        first_time=groups[0].first_time,
        last_time=groups[-1].last_time,
        content=content_of(groups),
        row_groups=groups,
    )
