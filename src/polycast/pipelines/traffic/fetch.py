"""Rows of the log, read by the workers that need them.

What Spark hands to a worker it has taken apart into its own rows and put together again, which costs more than
most of what is done with them. So Spark is asked for offsets alone, and whoever works on the rows gets them from
the log: the same ones, in the same order, and all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import GoneError
from polycast.log.reader import Reader

OFFSETS = "offset long"
"""The columns that a worker needs to be given."""
BATCH_ROWS = 64 * 1024

Batches = Iterator[pa.RecordBatch]


def fetch(log: Path, batches: Batches, columns: Sequence[str]) -> Batches:
    """The rows with the offsets that `batches` have, which rise. Raises GoneError if one is not there any more."""
    reader = Reader(log, 0, ["offset", *(name for name in columns if name != "offset")])
    try:
        for batch in batches:
            if batch.num_rows:
                yield from _fetch(reader, batch["offset"])
    finally:
        reader.close()


def _fetch(reader: Reader, offsets: pa.Array) -> Batches:
    first, after = offsets[0].as_py(), offsets[-1].as_py() + 1
    dense = after - first == len(offsets)
    left = len(offsets)
    reader.seek(first)
    while (rows := reader.read(after, BATCH_ROWS)) is not None:
        wanted = rows if dense else rows.filter(pc.is_in(rows["offset"], value_set=offsets))
        left -= wanted.num_rows
        if wanted.num_rows:
            yield wanted
    if left:
        what = f"{left:,} of the offsets {first:,} to {after - 1:,} went while they were read"
        raise GoneError(what, "begin again: log.retain_seconds and log.retain_bytes keep more")
