"""A log with the messages that a test wants, as a broker would have written them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from log.shelf import Shelf, stop
from polycast.log.files.format import SCHEMA, encode_group

BEGAN = 1_700_000_000_000_000
"""In microseconds; a whole number of minutes and 20 seconds."""
GROUP = 20_000


class Said(NamedTuple):
    topic: str
    payload: bytes = b""
    seconds: float = 0.0
    """Since BEGAN."""
    format: str = "bytes"
    source: str = "hermod.pub-1 127.0.0.1:5"
    sequence: int | None = None
    """Where it is not the next one of its topic."""


def write_log(data: Path, said: Sequence[Said], gaps: Iterable[tuple[int, int, str]] = ()) -> None:
    """One hot segment. A gap is (the message before which it lies, how many offsets, why)."""
    folder = data / "log"
    folder.mkdir(parents=True)
    shelf = Shelf(folder)
    shelf.begin()
    lost = {at: (count, reason) for at, count, reason in gaps}
    sequences: Counter[str] = Counter()
    for first, end in pairwise(sorted({0, len(said), *lost, *range(0, len(said), GROUP)})):
        more: dict[str, Any] = {}
        if first in lost:
            count, reason = lost[first]
            more["gap"] = {"first": shelf.next, "next": shelf.next + count, "reason": reason}
            shelf.next += count
        batch = _to_batch(said[first:end], shelf.next, sequences)
        shelf.write(encode_group(batch, shelf.layout, shelf.checksum, shelf.next, **more))
        shelf.next += end - first
    shelf.end()
    stop(shelf)


def _to_batch(said: Sequence[Said], offset: int, sequences: Counter[str]) -> pa.RecordBatch:
    numbers = []
    for each in said:
        number = sequences[each.topic] if each.sequence is None else each.sequence
        numbers.append(number)
        sequences[each.topic] = number + 1
    columns = {
        "offset": range(offset, offset + len(said)),
        "topic": [each.topic for each in said],
        "sequence": numbers,
        "time": [BEGAN + round(each.seconds * 1e6) for each in said],
        "dialect": ["hermod"] * len(said),
        "format": [each.format for each in said],
        "payload": [each.payload for each in said],
        "source": [each.source for each in said],
    }
    arrays = [pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
