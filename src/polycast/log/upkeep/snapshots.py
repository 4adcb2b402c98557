"""Writes a snapshot at the beginning of every segment that follows a full one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from polycast.errors import LogDamageError
from polycast.log.files.disk import Disk
from polycast.log.files.folder import Segment, segments
from polycast.log.files.snapshot import NO_BATCHES, Snapshot, advance, write_snapshot
from polycast.log.read.snapshot_delta import NO_ROWS, SnapshotDelta, apply_delta, empty_delta, read_delta


class SnapshotWriter:
    def __init__(self, folder: Path, current: Snapshot, trim: Callable[[Snapshot], Snapshot], disk: Disk) -> None:
        self._folder = folder
        self._current = current
        self._trim = trim
        self._disk = disk

    def catch_up(self, seed: int, waits: Callable[[Segment], bool] = lambda _: False) -> int:
        """Up to a segment that has to wait. The offset of the last snapshot."""
        for full, following in pairwise(segments(self._folder)):
            if full.first >= self._current.offset:
                if waits(full):
                    break
                self._advance(full, following.first)
                write_snapshot(self._folder, self._current, seed, self._disk)
        return self._current.offset

    def _advance(self, full: Segment, offset: int) -> None:
        before = advance(self._current, full.first, NO_ROWS, NO_BATCHES, full.first - self._current.offset)
        delta = self._read(full) or empty_delta(full.first)  # then every topic is assumed to have every offset
        self._current = self._trim(apply_delta(before, delta, offset))

    def _read(self, full: Segment) -> SnapshotDelta | None:
        """None for a damaged segment: sealing it reports the damage."""
        try:
            return read_delta(full)
        except LogDamageError:
            return None
