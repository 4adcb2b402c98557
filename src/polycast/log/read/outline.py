"""What a segment holds, without its rows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from polycast.errors import LogDamageError
from polycast.log.files.damage import Damage, walk
from polycast.log.files.folder import SEALED, Segment, segments, size_of
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader


class Outline(NamedTuple):
    segment: Segment
    size: int
    next: int
    """The offset after the last one; the first one, if there is none."""
    rows: int = 0
    first_time: int | None = None
    """In microseconds since the epoch."""
    last_time: int | None = None
    gaps: tuple[Gap, ...] = ()
    damage: str = ""
    """The first that was found. A segment that cannot be opened has no more than that."""


def outline_of(segment: Segment) -> Outline:
    """Raises FileNotFoundError if it is gone. Of a sealed segment only the end is read, of a hot one all."""
    empty = Outline(segment, size_of(segment), segment.first)
    try:
        return _of_sealed(empty) if segment.sealed else _of_hot(empty)
    except LogDamageError as error:
        return empty._replace(damage=str(error))


def _of_sealed(empty: Outline) -> Outline:
    with SealedReader(empty.segment.path) as reader:
        about = reader.about
    return empty._replace(
        next=about.next,
        rows=about.count,
        first_time=about.first_time,
        last_time=about.last_time,
        gaps=tuple(about.gaps),
    )


def _of_hot(empty: Outline) -> Outline:
    reader = HotReader(empty.segment.path)
    found = empty
    try:
        for group in walk(reader, empty.segment.first):
            if isinstance(group, Damage):
                found = found._replace(damage=found.damage or group.reason)
                continue
            stamp, times = group.stamp, group.batch["time"]
            found = found._replace(
                next=stamp.next,
                rows=found.rows + stamp.count,
                first_time=times[0].value if found.first_time is None else found.first_time,
                last_time=times[-1].value,
                gaps=(*found.gaps, stamp.gap) if stamp.gap else found.gaps,
            )
    finally:
        reader.close()
    return found


def outlines(folder: Path) -> list[Outline]:
    """Of all segments. One that is sealed meanwhile has another name then; one that is removed is left out."""
    found = []
    for segment in segments(folder):
        sealed = Segment(segment.first, segment.path.with_suffix(SEALED))
        for name in (segment, sealed):
            try:
                found.append(outline_of(name))
            except FileNotFoundError:
                continue
            break
    return found
