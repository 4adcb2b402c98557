"""Recovery: what a starting broker does with the folder that it finds.

After a clean stop nothing is read: the state file has the next offset, and a snapshot lies there. Otherwise the
last segment is read once. An unfinished group at its end is cut off. Damage with valid groups behind it is not
an unfinished group: the file goes to the quarantine, and its valid groups stay. The log continues at an offset and
at sequences that cannot have been used, and records the gap.

The time of a start does not depend on the length of the log: snapshots stand for all older segments.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import LogDamageError, LogVersionError, StartError
from polycast.log.files.damage import Damage, open_damaged, walk
from polycast.log.files.disk import Disk
from polycast.log.files.folder import TOPICS, Segment, first_offset_of, remove_leftovers, segments
from polycast.log.files.format import RESTORED, UNCLEAN, Gap, StreamPosition
from polycast.log.files.hot import Group, HotReader
from polycast.log.files.quarantine import QUARANTINE, quarantine, quarantine_tail
from polycast.log.files.snapshot import NO_BATCHES, Snapshot, advance, read_snapshot
from polycast.log.files.state import RESERVE, LogState, read_state
from polycast.log.read.segment_info import seed_of
from polycast.log.read.snapshot_delta import (
    NO_ROWS,
    SnapshotDelta,
    apply_delta,
    empty_delta,
    read_delta,
    to_delta,
)
from polycast.log.repair.salvage import salvage

log = logging.getLogger("polycast.log")

Deltas = dict[Path, SnapshotDelta | None]
"""Deltas of segments that were already read."""


class Recovered(NamedTuple):
    state: LogState
    """As a clean stop would have left it."""
    snapshot: Snapshot
    gap: Gap | None = None


def recover(folder: Path, disk: Disk, exact: bool = False, seed: str = "") -> Recovered:
    """`exact`: for a node of a cluster, whose log goes on after its last row: the stream has what follows."""
    remove_leftovers(folder)
    state = read_state(folder)
    found = segments(folder)
    if state and state.clean and not (found and found[-1].first >= state.next):
        snapshot = read_snapshot(folder, state.next)
        if snapshot:
            return Recovered(state, snapshot._replace(position=state.position if exact else None), state.gap)
    if state is None and not found:
        seed = seed or secrets.token_hex(8)
        return Recovered(LogState(seed=seed, clean=True, next=0, reserved=0), Snapshot(0))
    known = state.seed if state else _seed_of(folder)  # raises LogVersionError before anything is changed
    if exact and state and state.position:
        return _rebuild_node(folder, state, state.position, disk)
    return _rebuild(folder, state, known or secrets.token_hex(8), disk)


def _rebuild(folder: Path, state: LogState | None, seed: str, disk: Disk) -> Recovered:
    newest = _newest_snapshot(folder)
    deltas = _mend(folder, newest.offset, disk, torn=not (state and state.clean))
    snapshot, last = _catch_up(folder, newest, deltas)
    known = max(snapshot.offset, last.next)
    after = max(state.reserved if state else known + RESERVE, known)
    reason = f"{RESTORED} of {state.restored}" if state and state.restored else UNCLEAN
    gap = Gap(last.next, after, reason) if after > last.next else None
    if gap:
        why = "the last stop was not clean" if reason == UNCLEAN else reason
        log.warning("%s: %s; the log continues at offset %s instead of %s, and every topic skips as many "
                    "sequences", folder, why, f"{after:,}", f"{last.next:,}")  # fmt: skip
    snapshot = _raise_floor(advance(snapshot, after, NO_ROWS, NO_BATCHES, after - known))
    found = LogState(seed=seed, clean=True, next=after, reserved=after, checksum=last.checksum, micros=last.micros)
    return Recovered(found, snapshot, gap)


def _seed_of(folder: Path) -> str:
    """From the newest readable segment, so that a log without its state file keeps its identity."""
    for segment in reversed(segments(folder)):
        try:
            return seed_of(segment)
        except LogVersionError:
            raise
        except (LogDamageError, OSError):
            continue
    return ""


def _rebuild_node(folder: Path, state: LogState, start: StreamPosition, disk: Disk) -> Recovered:
    """`start` is the position at the last start; the groups written since have later ones."""
    newest = _newest_snapshot(folder)
    deltas = _mend(folder, newest.offset, disk, torn=not state.clean)
    snapshot, last = _catch_up(folder, newest, deltas)
    if snapshot.offset != last.next or any(delta and delta.lost for delta in deltas.values()):
        hint = "move the folder away: the node then starts with an empty one, and copies the log of another node"
        raise StartError(f"{folder} is damaged: rows before offset {last.next:,} are missing", hint)
    for path in (path for path, delta in deltas.items() if delta is None):
        path.unlink(missing_ok=True)  # without a group: the log goes on at its first offset, in a new file
    here = last.position and last.position.stream == start.stream
    position = last.position if here and last.position else start
    found = LogState(
        seed=state.seed, clean=True, next=last.next, reserved=last.next, checksum=last.checksum,
        micros=max(last.micros, state.micros), position=position,
    )  # fmt: skip
    return Recovered(found, snapshot._replace(position=position))


def _newest_snapshot(folder: Path) -> Snapshot:
    offsets = sorted(
        (o for path in folder.glob(f"*{TOPICS}") if (o := first_offset_of(path)) is not None), reverse=True
    )
    for offset in offsets:
        if snapshot := read_snapshot(folder, offset):
            return snapshot
        log.error("%s: the snapshot at offset %s is damaged; an older one takes longer", folder, f"{offset:,}")
    return Snapshot(0)


def _catch_up(folder: Path, snapshot: Snapshot, deltas: Deltas) -> tuple[Snapshot, SnapshotDelta]:
    """The snapshot at the end of the last segment, and the delta of the last segment that has messages."""
    found = segments(folder)
    last: SnapshotDelta | None = None
    end: SnapshotDelta | None = None
    for segment in found:
        if segment.first >= snapshot.offset:
            snapshot = apply_delta(snapshot, last or empty_delta(snapshot.offset), segment.first)
            last = _read(segment, deltas)
            end = last or end
    if last:
        snapshot = apply_delta(snapshot, last, last.next)
    end = end or next((delta for segment in reversed(found) if (delta := _read(segment, deltas))), None)
    return snapshot, end or empty_delta(snapshot.offset)


def _read(segment: Segment, deltas: Deltas) -> SnapshotDelta | None:
    """An unreadable segment adds nothing."""
    if segment.path in deltas:
        return deltas[segment.path]
    try:
        return read_delta(segment)
    except (LogDamageError, OSError, pa.ArrowException, KeyError, ValueError) as error:
        log.error("%s: its topics are unknown: %s", segment.path, error)
        return None


def _raise_floor(snapshot: Snapshot) -> Snapshot:
    """Topics that are not listed may be topics that the broker had forgotten before it died."""
    highest = pc.max(snapshot.topics["next_sequence"]).as_py()
    return snapshot._replace(floor=max(snapshot.floor, highest or 0))


# -- hot segments ----------------------------------------------------------------------------------------


class Inspection(NamedTuple):
    """The result of one pass over a hot segment."""

    end: int
    """The position behind the last group before any damage; 0 if the head of the file is damaged."""
    error: str = ""
    """The first damage."""
    groups_behind: bool = False
    """Whether valid groups follow behind damage."""
    delta: SnapshotDelta | None = None
    """Delta of the groups before any damage."""


def inspect(path: Path) -> Inspection:
    error = f"{path}: the head of the file is damaged"
    reader = open_damaged(path)
    if reader is None:
        return Inspection(0, error)
    inspected = _Walk(reader, first_offset_of(path) or 0, error if reader.head_damaged else "")
    try:
        delta = to_delta(inspected.groups())
    finally:
        reader.close()
    return Inspection(inspected.end, inspected.error, inspected.groups_behind, delta)


class _Walk:
    def __init__(self, reader: HotReader, first: int, error: str) -> None:
        self._found = walk(reader, first)
        self.end = 0 if error else reader.position
        self.error = error
        self.groups_behind = False

    def groups(self) -> Iterator[Group]:
        for found in self._found:
            if isinstance(found, Damage):
                self.error = self.error or found.reason
            elif self.error:
                self.groups_behind = True
                return
            else:
                self.end = found.position + found.header.size
                yield found


def _mend(folder: Path, since: int, disk: Disk, torn: bool) -> Deltas:
    """Repairs the hot segments from that offset on, and the last one in any case.

    Every other segment is durable: the next one exists. `torn`: the last one may end with an unfinished group.
    """
    deltas: Deltas = {}
    hot = [segment for segment in segments(folder) if not segment.sealed]
    for segment in hot:
        last = segment is hot[-1]
        if segment.first < since and not last:
            continue
        found = inspect(segment.path)
        if found.groups_behind or (found.error and not (last and torn)):
            salvage(segment.path, disk)
            continue
        if last and not found.end:
            log.warning("%s: moved to %s, it has no messages: %s", segment.path, QUARANTINE, found.error)
            quarantine(segment.path)
        elif last:
            _cut(segment.path, found.end, disk)
        deltas[segment.path] = found.delta
    return deltas


def _cut(path: Path, end: int, disk: Disk) -> None:
    """Removes an unfinished group, and saves it in the quarantine."""
    fd = os.open(path, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        tail = os.pread(fd, size - end, end).rstrip(b"\0")
        if tail:
            target = quarantine_tail(path, tail, end)
            log.warning("%s: %s bytes behind byte %s are an unfinished group; moved to %s",
                        path, f"{len(tail):,}", f"{end:,}", target)  # fmt: skip
        disk.truncate(fd, end)
        disk.sync(fd)
    finally:
        os.close(fd)
