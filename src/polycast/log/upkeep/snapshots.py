"""From one snapshot to the next: what a segment adds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from polycast.errors import LogDamageError
from polycast.log.batch_ids import BatchRow
from polycast.log.files.disk import Disk
from polycast.log.files.folder import Segment, segments
from polycast.log.files.format import NOTHING_BEFORE, SCHEMA, StampedBatch
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader
from polycast.log.files.snapshot import NO_BATCHES, Snapshot, advance, to_batches, write_snapshot

COLUMNS = ["offset", "topic", "sequence"]
NO_ROWS = pa.schema([SCHEMA.field(name) for name in COLUMNS]).empty_table()


class Added(NamedTuple):
    rows: pa.Table
    batches: list[BatchRow]
    lost: int
    """How many offsets are missing within."""
    next: int
    checksum: str
    """Of its last group."""
    micros: int
    """The time of its last message."""


def nothing_at(offset: int) -> Added:
    return Added(NO_ROWS, [], 0, offset, NOTHING_BEFORE, 0)


def read_added(segment: Segment) -> Added | None:
    """None for a segment without a message. Raises LogDamageError, and OSError if it is gone."""
    return _from_sealed(segment) if segment.sealed else _from_hot(segment)


def _from_hot(segment: Segment) -> Added | None:
    reader = HotReader(segment.path)
    try:
        groups = [(g.stamp, g.batch.select(COLUMNS), g.batch["time"][-1].value) for g in reader.groups()]
    finally:
        reader.close()
    if not groups:
        return None
    rows = pa.Table.from_batches([batch for _, batch, _ in groups]).replace_schema_metadata()
    batches = [_to_row(batch, micros) for stamp, _, micros in groups for batch in stamp.batches]
    gaps = [stamp.gap for stamp, _, _ in groups[1:] if stamp.gap]
    stamp, _, micros = groups[-1]
    return Added(rows, batches, sum(gap.next - gap.first for gap in gaps), stamp.next, stamp.checksum, micros)


def _from_sealed(segment: Segment) -> Added:
    with SealedReader(segment.path) as file:
        about = file.about
        rows = pa.Table.from_batches([file.read(number, COLUMNS) for number in range(len(about.row_groups))])
    batches = [_to_row(batch, about.last_time) for batch in about.batches]
    lost = about.next - about.first - about.count
    return Added(rows, batches, lost, about.next, about.checksum, about.last_time)


def _to_row(batch: StampedBatch, micros: int) -> BatchRow:
    return BatchRow(batch.batch_id, batch.first, batch.count, micros, batch.owner)


def step(before: Snapshot, added: Added, offset: int) -> Snapshot:
    """The snapshot at `offset`, where the next segment begins."""
    ahead = added.lost + offset - added.next
    return advance(before, offset, added.rows, to_batches(added.batches), ahead)


class Snapshots:
    """Writes the snapshot of every segment that follows one that is full."""

    def __init__(self, folder: Path, current: Snapshot, trim: Callable[[Snapshot], Snapshot], disk: Disk) -> None:
        self._folder = folder
        self._current = current
        self._trim = trim
        self._disk = disk

    def catch_up(self, seed: int) -> None:
        for full, following in pairwise(segments(self._folder)):
            if full.first >= self._current.offset:
                self._move(full, following.first)
                write_snapshot(self._folder, self._current, seed, self._disk)

    def _move(self, full: Segment, offset: int) -> None:
        before = advance(self._current, full.first, NO_ROWS, NO_BATCHES, full.first - self._current.offset)
        added = self._read(full)
        if added is None:  # whatever it held, no topic has come further than that
            added = nothing_at(full.first)
        self._current = self._trim(step(before, added, offset))

    def _read(self, full: Segment) -> Added | None:
        """Whoever seals a damaged segment says so; here it is passed over."""
        try:
            return read_added(full)
        except LogDamageError:
            return None
