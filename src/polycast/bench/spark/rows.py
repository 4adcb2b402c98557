"""Test data: a log, and the same rows as Parquet written by Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from polycast.log.files.disk import DISK
from polycast.log.files.encoding import encode_rows
from polycast.log.files.folder import HOT, file_name
from polycast.log.files.format import NOTHING_BEFORE, SCHEMA, Layout
from polycast.log.files.hot import HotSegment
from polycast.log.files.state import LogState, write_state
from polycast.log.upkeep.sealing import seal

TOPICS = 100
SOURCES = 10
PAYLOAD_BYTES = 100
GROUP_ROWS = 20_000
SEGMENT_ROWS = 1_000_000
MICROS_APART = 100
"""10,000 messages per second."""
START_MICROS = 1_760_000_000_000_000
SEED = 1
LETTERS = bytes(range(97, 123))


def write_log(folder: Path, count: int, hot: int = 0) -> None:
    """A log as after a clean stop. Its last `hot` rows are in a hot segment, the others are sealed."""
    folder.mkdir(parents=True)
    layout, checksum = Layout.of(SCHEMA, SEED), NOTHING_BEFORE
    sealed = count - min(hot, count)
    for start, stop in pairwise(sorted({*range(0, sealed, SEGMENT_ROWS), sealed, count})):
        path = folder / file_name(start, HOT)
        segment = HotSegment.create(path, layout)
        for first, batch in _batches(start, stop):
            written = encode_rows(batch, layout, checksum, first)
            segment.append(written.pieces)
            checksum = written.checksum
        segment.close()
        if start < sealed:
            seal(path)
    state = LogState(seed=f"{SEED:016x}", clean=True, next=count, reserved=count, checksum=checksum)
    write_state(folder, state, DISK)


def _batches(start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    for first in range(start, stop, GROUP_ROWS):
        yield first, make_batch(first, min(GROUP_ROWS, stop - first))


def make_batch(first: int, count: int) -> pa.RecordBatch:
    """Topics alternate; payloads are random letters."""
    numbers = range(first, first + count)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([f"sensors.{number % TOPICS}" for number in numbers]),
        pa.array([number // TOPICS for number in numbers], pa.int64()),
        pa.array([START_MICROS + number * MICROS_APART for number in numbers], SCHEMA.field("time").type),
        pa.array(["hermod"] * count),
        pa.array(["bytes"] * count),
        make_payloads(first, count),
        pa.array([f"hermod.pub-{number % SOURCES} 127.0.0.1:40000" for number in numbers]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def make_payloads(seed: int, count: int) -> pa.Array:
    letters = random.Random(seed).randbytes(count * PAYLOAD_BYTES).translate(LETTERS * 9 + LETTERS[:22])
    edges = pa.array(range(0, (count + 1) * PAYLOAD_BYTES, PAYLOAD_BYTES), pa.int32())
    return pa.Array.from_buffers(pa.binary(), count, [None, edges.buffers()[1], pa.py_buffer(letters)])


def read_source(spark: SparkSession, option: str, value: str, schema: str = "") -> DataFrame:
    """The rows of the log at `path` or `at`; a schema limits the columns."""
    reader = spark.read.format("polycast").option(option, value)
    return (reader.schema(schema) if schema else reader).load()
