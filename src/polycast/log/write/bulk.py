"""Bulk batches: columns that are too large for bursts go from Arrow to the log without an object per message.

Each row gets the next sequence of its topic. The rank of a row among all rows sorted by topic is computed
beforehand; the next sequence of its topic is added when the batch is numbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.bursts import to_bursts
from polycast.log.files.columns import COLUMN_LIMIT_BYTES
from polycast.log.files.format import SCHEMA
from polycast.model import Burst, Format

STAGED_SCHEMA = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("format", pa.string())])
"""The columns of staged rows. A null format means bytes."""

LONGEST_NAME = "hermod"
"""The longest dialect or format of a bulk batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Bulk:
    dialect: str
    columns: pa.RecordBatch
    """With the schema STAGED_SCHEMA."""
    names: list[bytes]
    """The distinct topics."""
    counts: list[int]
    """The number of rows of each topic."""
    lasts: list[int]
    """The last row of each topic."""
    numbers: pa.Array
    """The topic of each row, as an index into the names."""
    ranks: pa.Array
    """The rank of each row in a stable sort by topic."""
    frames: Sequence[Sequence[int]] = field(default=())
    """Where a replicated log has the frames with these rows."""

    def __len__(self) -> int:
        return int(self.columns.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class NumberedBulk:
    """With the first offset, and the first sequence of each topic."""

    bulk: Bulk
    offset: int
    sequences: list[int]

    def __len__(self) -> int:
        return len(self.bulk)


def total_bytes(parts: Sequence[pa.RecordBatch]) -> int:
    return sum(part.nbytes for part in parts)


def overflow(parts: Sequence[pa.RecordBatch], source: bytes) -> tuple[str, int] | None:
    """The first column that is too large for one group, and its bytes."""
    rows = sum(part.num_rows for part in parts)
    sizes = {
        "topic": sum(pc.sum(pc.binary_length(part["topic"])).as_py() or 0 for part in parts),
        "payload": sum(pc.sum(pc.binary_length(part["payload"])).as_py() or 0 for part in parts),
        "source": rows * max(len(source), len(LONGEST_NAME)),
    }
    return next(((name, size) for name, size in sizes.items() if size > COLUMN_LIMIT_BYTES), None)


def to_columns(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Joins all parts."""
    joined = pa.concat_batches(parts)
    formats = pc.fill_null(joined["format"], Format.BYTES.value)
    return pa.RecordBatch.from_arrays([joined["topic"], joined["payload"], formats], schema=STAGED_SCHEMA)


def to_stream(parts: Sequence[pa.RecordBatch]) -> bytes:
    """As an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, STAGED_SCHEMA) as stream:
        for part in parts:
            stream.write_batch(part)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_stream(data: bytes) -> list[pa.RecordBatch]:
    """Raises ValueError, OSError or ArrowException if the data are no such rows."""
    with pa.ipc.open_stream(data) as stream:
        if not stream.schema.equals(STAGED_SCHEMA):
            raise ValueError("rows of another schema")
        parts = list(stream)
    for part in parts:
        part.validate(full=True)
        if part["topic"].null_count or part["payload"].null_count:
            raise ValueError("a row without a topic or a payload")
    return parts


def to_bulk(dialect: str, columns: pa.RecordBatch, frames: Sequence[Sequence[int]] = ()) -> Bulk:
    topics = columns["topic"].dictionary_encode()
    numbers = topics.indices
    order = pc.array_sort_indices(numbers).cast(pa.int64())  # stable
    ends = pc.run_end_encode(numbers.take(order)).run_ends.to_pylist()
    counts = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    lasts = order.take(pa.array([end - 1 for end in ends], pa.int64())).to_pylist()
    names = topics.dictionary.cast(pa.binary()).to_pylist()
    return Bulk(dialect, columns, names, counts, lasts, numbers, pc.inverse_permutation(order), frames)


def to_rows(numbered: NumberedBulk, source: bytes, micros: int) -> pa.RecordBatch:
    """Rows of the log."""
    bulk, rows = numbered.bulk, len(numbered)
    begins = accumulate(bulk.counts, initial=0)
    shifts = [first - begin for first, begin in zip(numbered.sequences, begins, strict=False)]
    arrays = {
        "offset": _count_up(numbered.offset, rows),
        "topic": bulk.columns["topic"],
        "sequence": pc.add(bulk.ranks, pa.array(shifts, pa.int64()).take(bulk.numbers)),
        "time": pa.repeat(pa.scalar(micros, SCHEMA.field("time").type), rows),
        "dialect": pa.repeat(bulk.dialect, rows),
        "format": bulk.columns["format"],
        "payload": bulk.columns["payload"],
        "source": pa.repeat(source.decode(), rows),
    }
    return pa.RecordBatch.from_arrays([arrays[field.name] for field in SCHEMA], schema=SCHEMA)


def _count_up(first: int, count: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)


def to_burst(dialect: str, columns: pa.RecordBatch) -> Burst:
    """For a batch that is small enough to be delivered at once. It must have rows."""
    counted = _count_up(0, columns.num_rows)
    [burst] = to_bursts(columns.append_column("offset", counted).append_column("sequence", counted))
    return Burst(
        dialect, burst.block, burst.starts, burst.ends, burst.topics, burst.formats, burst.run_ends
    )  # fmt: skip
