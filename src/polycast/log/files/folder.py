"""The folder of the log: which files are there, and what their names say.

00000000000000000000.arrows     hot segment, named by its first offset
00000000000000000000.parquet    the same, sealed; where both are there, the sealed one counts
00000000000000000000.topics     what every topic had come to where that segment begins
00000000000000000000.batches    the batch ids that were remembered there
state.json                      how the last stop went, and which offsets may have been used
quarantine/                     files that are damaged, as they were found
seal.wanted                     somebody asks for everything to be sealed
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from polycast.log.files.disk import TEMPORARY, Disk

HOT = ".arrows"
SEALED = ".parquet"
TOPICS = ".topics"
BATCHES = ".batches"
SEAL_REQUEST = "seal.wanted"
DIGITS = 20


class Segment(NamedTuple):
    first: int
    path: Path

    @property
    def sealed(self) -> bool:
        return self.path.suffix == SEALED


def log_folder(data: str | Path) -> Path:
    """From the data folder to the folder of its log."""
    return Path(data) / "log"


def make_folder(folder: Path, disk: Disk) -> None:
    """And all above it that is not there; each new name is safe in the folder that holds it."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        disk.sync_folder(path.parent)


def file_name(first: int, suffix: str) -> str:
    return f"{first:0{DIGITS}}{suffix}"


def segments(folder: Path) -> list[Segment]:
    """Every segment once, by offset."""
    found: dict[int, Segment] = {}
    for path in folder.iterdir():
        if path.suffix in (HOT, SEALED) and (first := first_offset_of(path)) is not None:
            found[first] = max(found.get(first, Segment(first, path)), Segment(first, path), key=_rank)
    return [found[first] for first in sorted(found)]


def _rank(segment: Segment) -> bool:
    return segment.sealed


def first_offset_of(path: Path) -> int | None:
    """The offset that a file is named by, if it is."""
    return int(path.stem) if len(path.stem) == DIGITS and path.stem.isascii() and path.stem.isdigit() else None


def segment_size(segment: Segment) -> int:
    """0 for one that is gone."""
    try:
        return segment.path.stat().st_size
    except FileNotFoundError:
        return 0


def remove_leftovers(folder: Path) -> None:
    """Removes what a stop in the middle of something left: unfinished files, and hot segments that are sealed."""
    for path in folder.iterdir():
        if path.name.endswith(TEMPORARY) or (path.suffix == HOT and path.with_suffix(SEALED).exists()):
            path.unlink()


def remove_old_snapshots(folder: Path, newest: int) -> None:
    """Removes those before the newest that belong to no segment: starts after which nothing came leave them."""
    needed = {segment.first for segment in segments(folder)}
    for path in folder.iterdir():
        first = first_offset_of(path) if path.suffix in (TOPICS, BATCHES) else None
        if first is not None and first < newest and first not in needed:
            path.unlink(missing_ok=True)


def remove_segment(segment: Segment) -> None:
    """A segment and all that belongs to it."""
    for suffix in (SEALED, HOT, TOPICS, BATCHES):
        with contextlib.suppress(FileNotFoundError):
            segment.path.with_suffix(suffix).unlink()
