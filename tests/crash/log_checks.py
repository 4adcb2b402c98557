"""Reads and checks the log, with the reader and with pyarrow alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from crash.live_subscriber import LiveSubscriber, digest
from crash.publishers import IdempotentBatches, Publisher
from polycast.log.read.reader import Reader

COLUMNS = ["offset", "topic", "sequence", "payload"]


class Gap(NamedTuple):
    first: int
    next: int
    reason: str


class Row(NamedTuple):
    offset: int
    topic: str
    sequence: int
    payload: bytes


def to_rows(batches: Iterable[Any]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches:
        rows += map(Row, *(batch[name].to_pylist() for name in COLUMNS))
    return rows


def read_with_reader(folder: Path) -> list[Row]:
    reader = Reader(folder, 0)
    try:
        rows = to_rows(iter(reader.read, None))
        assert all(gap.refused for gap in reader.skipped)
        return rows
    finally:
        reader.close()


def read_with_pyarrow(folder: Path) -> tuple[list[Row], list[Gap]]:
    """Rows and recorded gaps."""
    rows: list[Row] = []
    gaps: list[Gap] = []
    for path in sorted(folder.glob("*.parquet")) + sorted(folder.glob("*.arrows")):
        read = _read_sealed if path.suffix == ".parquet" else _read_hot
        found, headers = read(path)
        rows += found
        gaps += [Gap(**gap) for gap in headers]
    return sorted(rows), sorted(gaps)


def _read_sealed(path: Path) -> tuple[list[Row], list[dict[str, Any]]]:
    table = pq.read_table(path)
    about = json.loads(pq.read_metadata(path).metadata[b"polycast"])
    return to_rows([table]), about["gaps"]


def _read_hot(path: Path) -> tuple[list[Row], list[dict[str, Any]]]:
    assert not path.with_suffix(".parquet").exists()
    rows: list[Row] = []
    gaps: list[dict[str, Any]] = []
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return rows, gaps
            header = json.loads(metadata[b"polycast"])
            rows += to_rows([batch])
            gaps += [header["gap"]] if "gap" in header else []


# -- what must hold --------------------------------------------------------------------------------------


def check_log(rows: list[Row], gaps: list[Gap]) -> None:
    """Offsets rise, every gap is recorded, and the sequences of each topic rise."""
    expected = 0
    reached: dict[str, int] = {}
    recorded = {gap.first: gap for gap in gaps}
    for row in rows:
        assert row.offset >= expected, row
        if row.offset > expected:
            gap = recorded.pop(expected, None)
            assert gap and gap.next == row.offset, f"{expected:,} to {row.offset:,} is not on record: {gap}"
        assert row.sequence > reached.get(row.topic, -1), row
        expected, reached[row.topic] = row.offset + 1, row.sequence
    assert not recorded, f"nothing is missing there: {recorded}"


def check_delivered(rows: list[Row], subscriber: LiveSubscriber, only_durable: bool) -> None:
    """Every delivered message equals the durable message with its sequence."""
    assert not subscriber.wrong, subscriber.wrong
    if only_durable:
        lost = subscriber.delivered.keys() - {(row.topic, row.sequence) for row in rows}
        assert not lost, f"{len(lost):,} messages were delivered and are not durable, among them {min(lost)}"
    for row in rows:
        delivered = subscriber.delivered.get((row.topic, row.sequence))
        assert delivered is None or delivered == digest(row.payload), (
            f"{row.topic} {row.sequence:,} was delivered differently"
        )


def check_acknowledged(rows: list[Row], publisher: Publisher) -> None:
    """Acknowledged messages are durable once, unchanged and in order."""
    assert not publisher.wrong, f"{publisher.name}: {publisher.wrong}"
    mark = publisher.name.encode() + b" "
    own = [row for row in rows if row.payload.startswith(mark)]
    numbers = [int(row.payload.split(b" ", 2)[1]) for row in own]
    for row, number in zip(own, numbers, strict=True):
        assert publisher.sent[number] == (row.topic, row.payload), f"{publisher.name}: {number} is another"
    assert all(a < b for a, b in pairwise(numbers)), f"{publisher.name}: not in order, or twice"
    lost = publisher.acked - set(numbers)
    assert not lost, f"{publisher.name}: lost {len(lost):,} that were acknowledged, from {min(lost):,} on"
    if isinstance(publisher, IdempotentBatches):
        _check_whole(set(numbers), publisher)


def _check_whole(durable: set[int], publisher: IdempotentBatches) -> None:
    for unit in publisher.units:
        there = len(durable.intersection(unit.numbers))
        assert there in (0, len(unit.numbers)), f"{unit.batch_id}: {there} of {len(unit.numbers)} messages"
