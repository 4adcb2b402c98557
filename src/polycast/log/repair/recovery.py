"""What a starting broker makes of the folder it finds.

After a clean stop all is known without reading: the state says where the log goes on, and a snapshot lies there.
Otherwise the last segment is read. What was being written when the broker died is cut off; damage with whole
groups behind it is no such tail: the file is put aside, and what is good of it stays. The log goes on where no
offset and no sequence can have been used, and the gap is on record.

Nothing here depends on how long the log is: snapshots say what came before the last segments.
"""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import LogDamageError
from polycast.log.files.disk import Disk
from polycast.log.files.folder import QUARANTINE, TOPICS, Segment, clear, first_of, quarantine, segments
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.files.snapshot import NO_BATCHES, Snapshot, advance, read_snapshot
from polycast.log.files.state import State, read_state
from polycast.log.repair.salvage import has_groups_behind, salvage
from polycast.log.upkeep.snapshots import NO_ROWS, Added, nothing_at, read_added, step
from polycast.log.write.writer import RESERVE

log = logging.getLogger("polycast.log")

UNCLEAN = "unclean stop"
EVERYTHING = 1 << 62
"""Past every offset."""


class Recovered(NamedTuple):
    state: State
    """As a clean stop would have left it."""
    snapshot: Snapshot
    gap: Gap | None = None


def recover(folder: Path, disk: Disk) -> Recovered:
    clear(folder)
    state = read_state(folder)
    found = segments(folder)
    if state and state.clean and not (found and found[-1].first >= state.next):
        snapshot = read_snapshot(folder, state.next)
        if snapshot:
            return Recovered(state, snapshot, state.gap)
    if state is None and not found:
        return Recovered(State(seed=secrets.token_hex(8), clean=True, next=0, reserved=0), Snapshot(0))
    return _rebuild(folder, state, disk)


def _rebuild(folder: Path, state: State | None, disk: Disk) -> Recovered:
    newest = _newest_snapshot(folder)
    _mend(folder, newest.offset, disk, torn=not (state and state.clean))
    snapshot, last = _catch_up(folder, newest)
    known = max(snapshot.offset, last.next)
    after = max(state.reserved if state else known + RESERVE, known)
    gap = Gap(last.next, after, UNCLEAN) if after > last.next else None
    if gap:
        log.warning("%s: the last stop was not clean; the log goes on at offset %s instead of %s, and every topic "
                    "skips as many sequences", folder, f"{after:,}", f"{last.next:,}")  # fmt: skip
    snapshot = _past_everything(advance(snapshot, after, NO_ROWS, NO_BATCHES, after - known))
    seed = state.seed if state else secrets.token_hex(8)
    found = State(seed=seed, clean=True, next=after, reserved=after, checksum=last.checksum, micros=last.micros)
    return Recovered(found, snapshot, gap)


def _catch_up(folder: Path, snapshot: Snapshot) -> tuple[Snapshot, Added]:
    """That snapshot, brought up to the end of the last segment; and the end of what has messages in it."""
    found = segments(folder)
    last: Added | None = None
    end: Added | None = None
    for segment in found:
        if segment.first >= snapshot.offset:
            snapshot = step(snapshot, last or nothing_at(snapshot.offset), segment.first)
            last = _read(segment)
            end = last or end
    if last:
        snapshot = step(snapshot, last, last.next)
    end = end or next(filter(None, map(_read, reversed(found))), None)
    return snapshot, end or nothing_at(snapshot.offset)


def _past_everything(snapshot: Snapshot) -> Snapshot:
    """For topics that are not listed: they may be those that the broker had forgotten before it died."""
    highest = pc.max(snapshot.topics["next_sequence"]).as_py()
    return snapshot._replace(floor=max(snapshot.floor, highest or 0))


def _newest_snapshot(folder: Path) -> Snapshot:
    offsets = sorted((o for path in folder.glob(f"*{TOPICS}") if (o := first_of(path)) is not None), reverse=True)
    for offset in offsets:
        if snapshot := read_snapshot(folder, offset):
            return snapshot
        log.error("%s: the snapshot at offset %s is damaged; an older one takes longer", folder, f"{offset:,}")
    return Snapshot(0)


def _read(segment: Segment) -> Added | None:
    """A segment that cannot be read adds nothing; whoever reads the log will be told more."""
    try:
        return read_added(segment)
    except (LogDamageError, OSError, pa.ArrowException, KeyError, ValueError) as error:
        log.error("%s: its topics are not known: %s", segment.path, error)
        return None


# -- the last segments -----------------------------------------------------------------------------------


def _mend(folder: Path, since: int, disk: Disk, torn: bool) -> None:
    """Those from that offset on, and the last in any case: where the next one has begun, it was safe before.

    `torn`: whether its end may be something that was being written.
    """
    hot = [segment for segment in segments(folder) if not segment.sealed]
    for segment in hot[:-1]:
        if segment.first >= since and _find_end(segment.path)[1]:
            salvage(segment.path, disk)
    if hot:
        _mend_last(hot[-1].path, disk, torn)


def _mend_last(path: Path, disk: Disk, torn: bool) -> None:
    end, error = _find_end(path)
    if has_groups_behind(path) or (error and not torn):
        salvage(path, disk)
    elif end:
        _cut(path, end, disk)
    else:
        level = logging.WARNING if torn else logging.ERROR
        log.log(level, "%s: put aside in %s, there are no messages in it: %s", path, QUARANTINE, error)
        quarantine(path)


def _find_end(path: Path) -> tuple[int, LogDamageError | None]:
    """Where the groups end that can be read from the beginning on, and what is wrong there."""
    try:
        reader = HotReader(path)
    except LogDamageError as error:
        return 0, error
    try:
        for _ in reader.groups(skip_to=EVERYTHING):
            pass
    except LogDamageError as error:
        return reader.position, error
    finally:
        reader.close()
    return reader.position, None


def _cut(path: Path, end: int, disk: Disk) -> None:
    """Takes off what was never finished; it is put aside all the same."""
    fd = os.open(path, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        tail = os.pread(fd, size - end, end).rstrip(b"\0")
        if tail:
            place = path.parent / QUARANTINE
            place.mkdir(exist_ok=True)
            (place / f"{path.stem}.{end}.tail").write_bytes(tail)
            log.warning("%s: %s bytes behind byte %s are a group that was never finished; they are in %s",
                        path, f"{len(tail):,}", f"{end:,}", place)  # fmt: skip
        disk.cut(fd, end)
        disk.sync(fd)
    finally:
        os.close(fd)
