"""The folder of the log: its files and their names.

00000000000000000000.arrows     hot segment, named by its first offset
00000000000000000000.parquet    sealed segment; if both exist, the sealed one counts
00000000000000000000.topics     snapshot of all topics at the beginning of that segment
00000000000000000000.batches    the batch ids remembered there
state.json                      whether the last stop was clean, and which offsets may have been used
quarantine/                     damaged files as they were found
seal.wanted                     a request to seal all segments
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from polycast.errors import StartError
from polycast.log.files.disk import TEMPORARY, Disk

HOT = ".arrows"
SEALED = ".parquet"
TOPICS = ".topics"
BATCHES = ".batches"
SEAL_REQUEST = "seal.wanted"
RESTORING = "log.restoring"
"""In the data folder: a log that is being restored."""
DIGITS = 20


class Segment(NamedTuple):
    first: int
    path: Path

    @property
    def sealed(self) -> bool:
        return self.path.suffix == SEALED


def log_folder(data: str | Path) -> Path:
    """The folder of the log in a data folder."""
    return Path(data) / "log"


def check_restored(folder: Path) -> None:
    """Raises StartError if a restore of this log was interrupted."""
    unfinished = folder.with_name(RESTORING)
    if unfinished.exists():
        hint = f"remove {unfinished}, and run polycast log restore again"
        raise StartError(f"{unfinished} is there: the log was not restored completely", hint)


def make_folder(folder: Path, disk: Disk) -> None:
    """Creates the folder and its missing parents, each durable in its parent."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        disk.sync_folder(path.parent)


def file_name(first: int, suffix: str) -> str:
    return f"{first:0{DIGITS}}{suffix}"


def segments(folder: Path) -> list[Segment]:
    """Every segment once, in the order of offsets."""
    found: dict[int, Segment] = {}
    for path in folder.iterdir():
        if path.suffix in (HOT, SEALED) and (first := first_offset_of(path)) is not None:
            found[first] = max(found.get(first, Segment(first, path)), Segment(first, path), key=_rank)
    return [found[first] for first in sorted(found)]


def _rank(segment: Segment) -> bool:
    return segment.sealed


def first_offset_of(path: Path) -> int | None:
    """The offset in the name of a file."""
    return int(path.stem) if len(path.stem) == DIGITS and path.stem.isascii() and path.stem.isdigit() else None


def segment_size(segment: Segment) -> int:
    """0 if the file is gone."""
    try:
        return segment.path.stat().st_size
    except FileNotFoundError:
        return 0


def remove_leftovers(folder: Path) -> None:
    """Removes unfinished files, and hot segments that are already sealed."""
    for path in folder.iterdir():
        if path.name.endswith(TEMPORARY) or (path.suffix == HOT and path.with_suffix(SEALED).exists()):
            path.unlink()


def remove_old_snapshots(folder: Path, newest: int) -> None:
    """Removes older snapshots without a segment: a start without messages leaves them."""
    needed = {segment.first for segment in segments(folder)}
    for path in folder.iterdir():
        first = first_offset_of(path) if path.suffix in (TOPICS, BATCHES) else None
        if first is not None and first < newest and first not in needed:
            path.unlink(missing_ok=True)


def remove_segment(segment: Segment) -> None:
    """With its snapshot."""
    for suffix in (SEALED, HOT, TOPICS, BATCHES):
        with contextlib.suppress(FileNotFoundError):
            segment.path.with_suffix(suffix).unlink()
