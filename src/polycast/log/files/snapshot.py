"""Snapshots: the next sequence of every topic, and the remembered batch ids, at an offset.

A snapshot lies beside the segment that begins at its offset. It makes the time of a start depend on the last
segment only, and finds the segment that has a given sequence of a topic. Both files are Arrow streams of one
group, with a checksum like the groups of the log:

    .topics     topic, next_sequence, last_offset      the null topic stands for all topics that are not listed
    .batches    batch_id, first, count, time, owner    in the order of offsets; version 1 has no owner
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import LogDamageError
from polycast.log.batch_ids import UNOWNED, BatchIds, BatchRow
from polycast.log.files.disk import Disk
from polycast.log.files.encoding import encode_rows
from polycast.log.files.folder import BATCHES, TOPICS, file_name
from polycast.log.files.format import (
    NOTHING_BEFORE,
    Layout,
    StreamPosition,
    read_batch,
    read_header,
    read_layout,
    size_at,
)
from polycast.log.times import to_micros

TOPICS_SCHEMA = pa.schema([("topic", pa.string()), ("next_sequence", pa.int64()), ("last_offset", pa.int64())])
TIME = pa.timestamp("us", tz="UTC")
BATCHES_SCHEMA_1 = pa.schema(
    [("batch_id", pa.string()), ("first", pa.int64()), ("count", pa.int64()), ("time", TIME)]
)
BATCHES_SCHEMA = BATCHES_SCHEMA_1.append(pa.field("owner", pa.string()))
NO_TOPICS = TOPICS_SCHEMA.empty_table()
NO_BATCHES = BATCHES_SCHEMA.empty_table()


class Snapshot(NamedTuple):
    offset: int
    topics: pa.Table = NO_TOPICS
    floor: int = 0
    """The next sequence of all topics that are not in the table."""
    batches: pa.Table = NO_BATCHES
    position: StreamPosition | None = None
    """Of a node of a cluster. It is not part of the files."""


# -- changes ---------------------------------------------------------------------------------------------


def advance(before: Snapshot, offset: int, rows: pa.Table, batches: pa.Table, ahead: int = 0) -> Snapshot:
    """The snapshot at `offset`, after these rows.

    `ahead`: the number of messages that are not among the rows and may have got a sequence, of any topic.
    """
    topics = _merge_topics(before.topics, rows, ahead)
    return Snapshot(offset, topics, before.floor + ahead, pa.concat_tables([before.batches, batches]))


def _merge_topics(topics: pa.Table, rows: pa.Table, ahead: int) -> pa.Table:
    ends = rows.group_by("topic").aggregate([("sequence", "max"), ("offset", "max")])
    after = pc.add(ends["sequence_max"], 1)
    both = pa.concat_tables([topics, pa.table([ends["topic"], after, ends["offset_max"]], schema=TOPICS_SCHEMA)])
    found = both.group_by("topic").aggregate([("next_sequence", "max"), ("last_offset", "max")])
    columns = [found["topic"], pc.add(found["next_sequence_max"], ahead), found["last_offset_max"]]
    return pa.table(columns, schema=TOPICS_SCHEMA)


def trim_topics(snapshot: Snapshot, topics: int) -> Snapshot:
    """Limits the topics to the most recently used. Forgotten topics raise the floor.

    A node has exactly the topics of its table: those that were used since its old generation began.
    """
    table, floor = snapshot.topics, snapshot.floor
    if position := snapshot.position:
        used = table.filter(pc.greater_equal(table["last_offset"], position.generations[0]))
        return snapshot._replace(topics=used, floor=position.floor)
    if table.num_rows > topics:
        table = table.sort_by([("last_offset", "descending")])
        forgotten = pc.max(table.slice(topics)["next_sequence"]).as_py()
        table, floor = table.slice(0, topics), max(floor, forgotten)
    return snapshot._replace(topics=table, floor=floor)


def to_topics(rows: Iterable[tuple[str, int, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, TOPICS_SCHEMA, strict=True)]
    return pa.table(arrays, schema=TOPICS_SCHEMA)


def to_batches(rows: Iterable[BatchRow]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(BATCHES_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BATCHES_SCHEMA, strict=True)]
    return pa.table(arrays, schema=BATCHES_SCHEMA)


def batch_rows(table: pa.Table) -> Iterator[BatchRow]:
    columns = [column.cast(pa.int64()) if column.type == TIME else column for column in table.columns]
    return map(BatchRow, *(column.to_pylist() for column in columns))


def trim_batches(table: pa.Table, limit: int, seconds: float) -> pa.Table:
    """The batch ids that `BatchIds` has after these rows were added in their order.

    Past the limit every row counts, also one that has expired since: another one was forgotten instead of it.
    """
    if table.num_rows > limit:
        return to_batches(BatchIds(limit, seconds, batch_rows(table)).rows())
    last = table["time"][-1].value if table.num_rows else 0
    return table.filter(pc.greater(table["time"], pa.scalar(last - to_micros(seconds), TIME)))


# -- on disk ---------------------------------------------------------------------------------------------


def write_snapshot(folder: Path, snapshot: Snapshot, seed: int, disk: Disk) -> None:
    """Topics are written last: their file name makes the snapshot visible."""
    others = to_topics([(None, snapshot.floor, -1)])  # type: ignore[list-item]
    topics = pa.concat_tables([snapshot.topics, others])
    for table, suffix in ((snapshot.batches, BATCHES), (topics, TOPICS)):
        layout = Layout.of(table.schema, seed)
        batch = pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)
        message = encode_rows(batch, layout, NOTHING_BEFORE, snapshot.offset)
        disk.replace(folder / file_name(snapshot.offset, suffix), b"".join([layout.head, *message.pieces]))


def has_snapshot(folder: Path, offset: int) -> bool:
    return (folder / file_name(offset, TOPICS)).exists()


def read_snapshot(folder: Path, offset: int) -> Snapshot | None:
    """None if it is missing or damaged."""
    try:
        listed = read_topics(folder / file_name(offset, TOPICS))
        batches = _read_batches(folder / file_name(offset, BATCHES))
    except (OSError, LogDamageError):
        return None
    floor = pc.max(listed.filter(pc.is_null(listed["topic"]))["next_sequence"]).as_py()
    return Snapshot(offset, listed.filter(pc.is_valid(listed["topic"])), floor or 0, batches)


def read_topics(path: Path) -> pa.Table:
    """Including the row for all topics that are not listed."""
    return _read(path, {1: TOPICS_SCHEMA, 2: TOPICS_SCHEMA})


def _read_batches(path: Path) -> pa.Table:
    table = _read(path, {1: BATCHES_SCHEMA_1, 2: BATCHES_SCHEMA})
    if table.schema == BATCHES_SCHEMA:
        return table
    return table.append_column("owner", pa.repeat(pa.scalar(UNOWNED, pa.string()), table.num_rows))


def _read(path: Path, schemas: Mapping[int, pa.Schema]) -> pa.Table:
    """`schemas` by the version of the file."""
    data = memoryview(path.read_bytes())
    layout = read_layout(data)
    at = len(layout.head)
    if layout.schema.remove_metadata() != schemas.get(layout.version) or not size_at(data, at):
        raise LogDamageError(f"{path} is no snapshot")
    header = read_header(data, at, layout.seed)
    return pa.Table.from_batches([read_batch(data, at, header, layout)]).replace_schema_metadata()
