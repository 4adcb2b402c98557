"""Writes a log with given messages, as a broker would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from log.log_builder import LogBuilder, stop
from polycast.log.files.encoding import encode_rows
from polycast.log.files.format import SCHEMA

BEGAN = 1_700_000_000_000_000
"""Microseconds since the epoch."""
GROUP = 20_000


class Sent(NamedTuple):
    topic: str
    payload: bytes = b""
    seconds: float = 0.0
    """Since BEGAN."""
    format: str = "bytes"
    source: str = "hermod.pub-1 127.0.0.1:5"
    sequence: int | None = None
    """None: the next sequence of the topic."""


def write_log(data: Path, sent: Sequence[Sent], gaps: Iterable[tuple[int, int, str]] = ()) -> None:
    """One hot segment. A gap is (index of the message after it, number of offsets, reason)."""
    folder = data / "log"
    folder.mkdir(parents=True)
    builder = LogBuilder(folder)
    builder.begin()
    lost = {at: (count, reason) for at, count, reason in gaps}
    sequences: Counter[str] = Counter()
    for first, end in pairwise(sorted({0, len(sent), *lost, *range(0, len(sent), GROUP)})):
        more: dict[str, Any] = {}
        if first in lost:
            count, reason = lost[first]
            more["gap"] = {"first": builder.next, "next": builder.next + count, "reason": reason}
            builder.next += count
        batch = _to_batch(sent[first:end], builder.next, sequences)
        builder.write(encode_rows(batch, builder.layout, builder.checksum, builder.next, **more))
        builder.next += end - first
    builder.end()
    stop(builder)


def _to_batch(sent: Sequence[Sent], offset: int, sequences: Counter[str]) -> pa.RecordBatch:
    numbers = []
    for each in sent:
        number = sequences[each.topic] if each.sequence is None else each.sequence
        numbers.append(number)
        sequences[each.topic] = number + 1
    columns = {
        "offset": range(offset, offset + len(sent)),
        "topic": [each.topic for each in sent],
        "sequence": numbers,
        "time": [BEGAN + round(each.seconds * 1e6) for each in sent],
        "dialect": ["hermod"] * len(sent),
        "format": [each.format for each in sent],
        "payload": [each.payload for each in sent],
        "source": [each.source for each in sent],
    }
    arrays = [pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
