"""What a segment adds to the snapshot at its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from polycast.log.batch_ids import BatchRow
from polycast.log.files.folder import Segment
from polycast.log.files.format import NOTHING_BEFORE, SCHEMA, BatchEntry, GroupHeader, StreamPosition
from polycast.log.files.hot import Group, HotReader
from polycast.log.files.sealed import SealedReader
from polycast.log.files.snapshot import Snapshot, advance, to_batches

COLUMNS = ["offset", "topic", "sequence"]
NO_ROWS = pa.schema([SCHEMA.field(name) for name in COLUMNS]).empty_table()


class SnapshotDelta(NamedTuple):
    rows: pa.Table
    batches: list[BatchRow]
    lost: int
    """How many offsets are missing within."""
    next: int
    checksum: str
    """Checksum of the last group."""
    micros: int
    """The time of the last message."""
    position: StreamPosition | None = None
    """Stream position of the last group."""


def empty_delta(offset: int) -> SnapshotDelta:
    return SnapshotDelta(NO_ROWS, [], 0, offset, NOTHING_BEFORE, 0)


def read_delta(segment: Segment) -> SnapshotDelta | None:
    """None for a segment without messages. Raises LogDamageError, and OSError if the segment is gone."""
    if segment.sealed:
        return _from_sealed(segment)
    reader = HotReader(segment.path)
    try:
        return to_delta(reader.groups())
    finally:
        reader.close()


def to_delta(groups: Iterable[Group]) -> SnapshotDelta | None:
    """The delta of the valid groups of a hot segment."""
    headers: list[GroupHeader] = []
    parts: list[pa.RecordBatch] = []
    batches: list[BatchRow] = []
    micros = 0
    for group in groups:
        micros = group.batch["time"][-1].value
        headers.append(group.header)
        parts.append(group.batch.select(COLUMNS))
        batches += [_to_row(batch, micros) for batch in group.header.batches]
    if not headers:
        return None
    rows = pa.Table.from_batches(parts).replace_schema_metadata()
    lost = sum(header.gap.next - header.gap.first for header in headers[1:] if header.gap)
    last = headers[-1]
    return SnapshotDelta(rows, batches, lost, last.next, last.checksum, micros, last.position)


def _from_sealed(segment: Segment) -> SnapshotDelta:
    with SealedReader(segment.path) as file:
        metadata = file.metadata
        rows = pa.Table.from_batches([file.read(number, COLUMNS) for number in range(len(metadata.row_groups))])
    batches = [_to_row(batch, metadata.last_time) for batch in metadata.batches]
    lost = metadata.next - metadata.first - metadata.count
    return SnapshotDelta(
        rows, batches, lost, metadata.next, metadata.checksum, metadata.last_time, metadata.position
    )


def _to_row(batch: BatchEntry, micros: int) -> BatchRow:
    return BatchRow(batch.batch_id, batch.first, batch.count, batch.micros or micros, batch.owner)


def apply_delta(before: Snapshot, delta: SnapshotDelta, offset: int) -> Snapshot:
    """The snapshot at `offset`, where the next segment begins."""
    ahead = delta.lost + offset - delta.next
    after = advance(before, offset, delta.rows, to_batches(delta.batches), ahead)
    return after._replace(position=delta.position)
