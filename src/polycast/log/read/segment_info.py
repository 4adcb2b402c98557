"""Summaries of segments, without their rows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from polycast.errors import LogDamageError
from polycast.log.files.damage import Damage, walk
from polycast.log.files.folder import SEALED, Segment, segment_size, segments
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader


class SegmentInfo(NamedTuple):
    segment: Segment
    size: int
    """Bytes that are written; a damaged file as it is."""
    next: int
    """The offset after the last message; without messages, the first offset."""
    rows: int = 0
    first_time: int | None = None
    """Microseconds since the epoch."""
    last_time: int | None = None
    gaps: tuple[Gap, ...] = ()
    damage: str = ""
    """The first damage. An unreadable segment has no other fields."""


def read_segment_info(segment: Segment) -> SegmentInfo:
    """Raises FileNotFoundError if it is gone. Reads only the footer of a sealed segment, but all of a hot one."""
    empty = SegmentInfo(segment, segment_size(segment), segment.first)
    try:
        return _of_sealed(empty) if segment.sealed else _of_hot(empty)
    except LogDamageError as error:
        return empty._replace(damage=str(error))


def _of_sealed(empty: SegmentInfo) -> SegmentInfo:
    with SealedReader(empty.segment.path) as reader:
        metadata = reader.metadata
    return empty._replace(
        next=metadata.next,
        rows=metadata.count,
        first_time=metadata.first_time,
        last_time=metadata.last_time,
        gaps=tuple(metadata.gaps),
    )


def _of_hot(empty: SegmentInfo) -> SegmentInfo:
    reader = HotReader(empty.segment.path)
    found, end = empty, reader.position
    try:
        for group in walk(reader, empty.segment.first):
            if isinstance(group, Damage):
                found = found._replace(damage=found.damage or group.reason)
                continue
            header, times = group.header, group.batch["time"]
            end = group.position + header.size
            found = found._replace(
                next=header.next,
                rows=found.rows + header.count,
                first_time=times[0].value if found.first_time is None else found.first_time,
                last_time=times[-1].value,
                gaps=(*found.gaps, header.gap) if header.gap else found.gaps,
            )
    finally:
        reader.close()
    return found if found.damage else found._replace(size=end)


def seed_of(segment: Segment) -> str:
    """The seed of the log, from the head of one of its segments."""
    if segment.sealed:
        with SealedReader(segment.path) as sealed:
            return sealed.metadata.seed
    hot = HotReader(segment.path)
    hot.close()
    return f"{hot.layout.seed:016x}"


def read_segment_infos(folder: Path) -> list[SegmentInfo]:
    """Infos of all segments, also while segments are sealed and removed."""
    found = []
    for segment in segments(folder):
        sealed = Segment(segment.first, segment.path.with_suffix(SEALED))
        for name in (segment, sealed):
            try:
                found.append(read_segment_info(name))
            except FileNotFoundError:
                continue
            break
    return found
