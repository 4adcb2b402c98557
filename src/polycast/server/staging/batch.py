"""Turns staged rows into one batch: a burst if there are few rows, bulk columns otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.columns import COLUMN_LIMIT_BYTES
from polycast.log.read.work import Work
from polycast.log.write import bulk
from polycast.log.write.bulk import Bulk
from polycast.log.write.entry import ROW_BYTES
from polycast.model import Burst
from polycast.server.dispatch.publisher import FORWARD_BATCH_LIMIT
from polycast.server.staging.arrow_frames import StageError

LIVE_BYTES = 1024 * 1024
"""A larger batch is delivered from the log."""


def prepare(
    parts: list[pa.RecordBatch],
    dialect: str,
    source: bytes,
    forwards: bool,
    topic_limit: int,
    frames: Sequence[Sequence[int]],
) -> Work[Bulk | Burst]:
    _check_size(parts, source, forwards)
    yield
    columns = bulk.to_columns(parts)
    yield
    topics = pc.count_distinct(columns["topic"]).as_py()
    if topics > topic_limit:
        raise StageError(
            422,
            f"the batch has {topics:,} topics, the limit is {topic_limit:,}; commit fewer rows at a time "
            "(maxOffsetsPerTrigger), or raise hermod.batch_topics",
        )
    yield
    small = bulk.total_bytes([columns]) + ROW_BYTES * columns.num_rows <= LIVE_BYTES
    return bulk.to_burst(dialect, columns) if small or forwards else bulk.to_bulk(dialect, columns, frames)


def _check_size(parts: list[pa.RecordBatch], source: bytes, forwards: bool) -> None:
    rows = sum(part.num_rows for part in parts)
    if forwards and rows > FORWARD_BATCH_LIMIT:
        raise StageError(
            422,
            f"the batch has {rows:,} rows, the limit is {FORWARD_BATCH_LIMIT:,} on a broker that forwards "
            "(simplest.forward); commit fewer rows at a time (maxOffsetsPerTrigger), or at a broker without it",
        )
    if too_large := bulk.overflow(parts, source):
        name, size = too_large
        raise StageError(
            422,
            f"the column {name} of the batch has {size:,} bytes, and one batch can have {COLUMN_LIMIT_BYTES:,}; "
            "commit fewer rows at a time (maxOffsetsPerTrigger)",
        )


def live_size(burst: Burst) -> int:
    return len(burst.block) + ROW_BYTES * len(burst)
