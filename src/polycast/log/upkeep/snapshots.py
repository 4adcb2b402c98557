"""Writes a snapshot at the beginning of every segment that follows a full one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from polycast.errors import LogDamageError
from polycast.log.files.disk import Disk
from polycast.log.files.folder import Segment, segments
from polycast.log.files.snapshot import (
    NO_BATCHES,
    Snapshot,
    advance,
    has_snapshot,
    read_snapshot,
    write_snapshot,
)
from polycast.log.read.snapshot_delta import NO_ROWS, SnapshotDelta, apply_delta, empty_delta, read_delta


class SnapshotWriter:
    def __init__(self, folder: Path, current: Snapshot, trim: Callable[[Snapshot], Snapshot], disk: Disk) -> None:
        self._folder = folder
        self._current = current
        self._start = current.offset
        self._trim = trim
        self._disk = disk
        self._filled = False

    def catch_up(self, seed: int, waits: Callable[[Segment], bool] = lambda _: False) -> int:
        """Up to a segment that has to wait. The offset of the last snapshot."""
        for full, following in pairwise(segments(self._folder)):
            if full.first >= self._current.offset:
                if waits(full):
                    break
                self._current = self._write_next(self._current, full, following.first, seed)
        self._filled = self._filled or self._fill(seed, waits)
        return self._current.offset

    def _fill(self, seed: int, waits: Callable[[Segment], bool]) -> bool:
        """Snapshots that a stop in a surge left out. False: some wait.

        Without them, a search by sequence has to read segments, and cannot tell what retention has removed.
        """
        before: Snapshot | None = None
        for full, following in pairwise(segments(self._folder)):
            if following.first >= self._start:
                return True
            if has_snapshot(self._folder, following.first):
                before = None
            elif before := before or read_snapshot(self._folder, full.first):
                if waits(full):
                    return False
                before = self._write_next(before, full, following.first, seed)
        return True

    def _write_next(self, before: Snapshot, full: Segment, offset: int, seed: int) -> Snapshot:
        """The snapshot behind a full segment."""
        before = advance(before, full.first, NO_ROWS, NO_BATCHES, full.first - before.offset)
        delta = self._read(full) or empty_delta(full.first)  # then every topic is assumed to have every offset
        snapshot = self._trim(apply_delta(before, delta, offset))
        write_snapshot(self._folder, snapshot, seed, self._disk)
        return snapshot

    def _read(self, full: Segment) -> SnapshotDelta | None:
        """None for a damaged segment: sealing it reports the damage."""
        try:
            return read_delta(full)
        except LogDamageError:
            return None
