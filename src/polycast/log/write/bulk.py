"""A batch that comes as columns, too large to be made into bursts: from Arrow to the log without a message.

Each row has its topic's next sequence. Where a row stands among all rows when these are sorted by topic is found
ahead, without knowing what comes before; what its topic has come to when the batch is numbered is added later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.bursts import to_bursts
from polycast.log.files.columns import COLUMN_LIMIT_BYTES
from polycast.log.files.format import SCHEMA
from polycast.model import Burst, Format

STAGED_SCHEMA = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("format", pa.string())])
"""What the parts of a bulk have. No format means bytes."""

LONGEST = "hermod"
"""No dialect or format that comes in bulk has more letters."""


@dataclass(frozen=True, slots=True, eq=False)
class Bulk:
    dialect: str
    columns: pa.RecordBatch
    """As `STAGED_SCHEMA` has them."""
    names: list[bytes]
    """The topics, each once."""
    counts: list[int]
    """How many rows each of them has."""
    lasts: list[int]
    """The last row of each."""
    numbers: pa.Array
    """The topic of each row, as a place among the names."""
    places: pa.Array
    """Where each row stands when they are sorted by these numbers."""

    def __len__(self) -> int:
        return int(self.columns.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class NumberedBulk:
    """A bulk with what the hub gave it: an offset, and the sequence that each of its topics begins with."""

    bulk: Bulk
    offset: int
    sequences: list[int]

    def __len__(self) -> int:
        return len(self.bulk)


def total_bytes(parts: Sequence[pa.RecordBatch]) -> int:
    return sum(part.nbytes for part in parts)


def overflow(parts: Sequence[pa.RecordBatch], source: bytes) -> tuple[str, int] | None:
    """A column that would be too large for one group, and its bytes."""
    rows = sum(part.num_rows for part in parts)
    sizes = {
        "topic": sum(pc.sum(pc.binary_length(part["topic"])).as_py() or 0 for part in parts),
        "payload": sum(pc.sum(pc.binary_length(part["payload"])).as_py() or 0 for part in parts),
        "source": rows * max(len(source), len(LONGEST)),
    }
    return next(((name, size) for name, size in sizes.items() if size > COLUMN_LIMIT_BYTES), None)


def to_columns(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All parts as one."""
    joined = pa.concat_batches(parts)
    formats = pc.fill_null(joined["format"], Format.BYTES.value)
    return pa.RecordBatch.from_arrays([joined["topic"], joined["payload"], formats], schema=STAGED_SCHEMA)


def to_bulk(dialect: str, columns: pa.RecordBatch) -> Bulk:
    topics = columns["topic"].dictionary_encode()
    numbers = topics.indices
    order = pc.array_sort_indices(numbers).cast(pa.int64())  # stable: rows of one topic keep their order
    ends = pc.run_end_encode(numbers.take(order)).run_ends.to_pylist()
    counts = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    lasts = order.take(pa.array([end - 1 for end in ends], pa.int64())).to_pylist()
    names = topics.dictionary.cast(pa.binary()).to_pylist()
    return Bulk(dialect, columns, names, counts, lasts, numbers, pc.inverse_permutation(order))


def to_rows(numbered: NumberedBulk, source: bytes, micros: int) -> pa.RecordBatch:
    """As rows of the log."""
    bulk, rows = numbered.bulk, len(numbered)
    begins = accumulate(bulk.counts, initial=0)
    shifts = [first - begin for first, begin in zip(numbered.sequences, begins, strict=False)]
    arrays = {
        "offset": _count_up(numbered.offset, rows),
        "topic": bulk.columns["topic"],
        "sequence": pc.add(bulk.places, pa.array(shifts, pa.int64()).take(bulk.numbers)),
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
    """What is small enough to be handed out at once. There must be a row."""
    counted = _count_up(0, columns.num_rows)
    [burst] = to_bursts(columns.append_column("offset", counted).append_column("sequence", counted))
    return Burst(
        dialect, burst.block, burst.starts, burst.ends, burst.topics, burst.formats, burst.run_ends
    )  # fmt: skip
