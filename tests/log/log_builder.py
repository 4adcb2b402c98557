"""A log on disk, written group by group like a broker does, and its expected rows."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import settings

from polycast.log.files.disk import DISK
from polycast.log.files.encoding import EncodedGroup, encode_rows
from polycast.log.files.folder import HOT, file_name
from polycast.log.files.format import NOTHING_BEFORE, SCHEMA, Layout
from polycast.log.files.hot import HotSegment
from polycast.log.files.state import LogState, write_state
from polycast.log.repair.verify import LogFinding, verify
from polycast.log.upkeep.sealing import seal

SEED = 0xFEEDFACE
BEGAN = 1_700_000_000_000_000
"""The time of offset 0, in microseconds; each offset takes one second."""
SECOND = 1_000_000
TOPICS = ("a", "b.c")
Row = dict[str, Any]
POSITION_SHARE = 200
"""Every byte with 200 examples or more, every fifth with 40."""


def time_of(offset: int) -> int:
    return BEGAN + offset * SECOND


class LogBuilder:
    """`builder.begin(); builder.add(3); builder.end()` is a segment of one group with three rows."""

    def __init__(self, folder: Path, seed: int = SEED) -> None:
        self.folder = folder
        self.layout = Layout.of(SCHEMA, seed)
        self.rows: list[Row] = []
        self.next = 0
        self.checksum = NOTHING_BEFORE
        self.positions: list[int] = []
        """Where each group of the segment begins."""
        self._sequences: Counter[str] = Counter()
        self._segment: HotSegment | None = None
        self._gap: dict[str, Any] | None = None

    def begin(self) -> Path:
        self.end()
        self._segment = HotSegment.create(self.folder / file_name(self.next, HOT), self.layout)
        self.positions = []
        return self._segment.path

    def add(self, count: int, payload: bytes | None = None, topics: Sequence[str] = TOPICS, **more: Any) -> None:
        batch = self.make(count, payload, topics)
        self.write(encode_rows(batch, self.layout, self.checksum, self.next, gap=self._gap, **more))
        self._gap = None
        self.next += count

    def write(self, message: EncodedGroup) -> None:
        assert self._segment
        self.positions.append(self._segment.end)
        self._segment.append(message.pieces)
        self.checksum = message.checksum

    def skip(self, count: int, reason: str = "unclean stop") -> None:
        self._gap = {"first": self.next, "next": self.next + count, "reason": reason}
        self.next += count

    def end(self) -> None:
        if self._segment:
            self._segment.close()
            self._segment = None

    def segment(self, *counts: int, **more: Any) -> Path:
        """A complete segment, with groups of these sizes."""
        path = self.begin()
        for count in counts:
            self.add(count, **more)
        self.end()
        return path

    def make(self, count: int, payload: bytes | None = None, topics: Sequence[str] = TOPICS) -> pa.RecordBatch:
        rows = []
        for offset in range(self.next, self.next + count):
            topic = topics[offset % len(topics)]
            rows.append(
                {
                    "offset": offset,
                    "topic": topic,
                    "sequence": self._sequences[topic],
                    "time": time_of(offset),
                    "dialect": "hermod",
                    "format": "bytes",
                    "payload": _payload(offset) if payload is None else payload,
                    "source": "tcp://127.0.0.1:5",
                }
            )
            self._sequences[topic] += 1
        self.rows += rows
        columns = [pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in SCHEMA.names]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _payload(offset: int) -> bytes:
    return b"%d:%b" % (offset, bytes([offset % 256]) * (offset % 7))


def to_rows(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    rows = []
    for batch in batches:
        values = {name: batch[name].to_pylist() for name in batch.schema.names if name != "time"}
        if "time" in batch.schema.names:
            values["time"] = batch["time"].cast(pa.int64()).to_pylist()
        rows += [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return rows


def digest(payloads: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for payload in payloads:
        total.update(len(payload).to_bytes(4, "little") + payload)
    return total.hexdigest()


def every_byte(start: int, stop: int) -> range:
    """Positions to damage: a share that grows with the Hypothesis profile, from another start each time."""
    step = max(1, POSITION_SHARE // settings().max_examples)
    return range(start + random.randrange(step), stop, step)


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    """Flipping twice restores the byte."""
    with path.open("r+b") as file:
        file.seek(position)
        [byte] = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def stop(builder: LogBuilder, clean: bool = True) -> None:
    """As a broker leaves it."""
    state = LogState(
        seed=f"{SEED:016x}", clean=clean, next=builder.next, reserved=builder.next, checksum=builder.checksum
    )  # fmt: skip
    write_state(builder.folder, state, DISK)


def half_sealed(folder: Path, topics: Sequence[str] = TOPICS) -> LogBuilder:
    """A log of 300 messages: two sealed segments with 100 each and a hot one."""
    folder.mkdir(parents=True)
    made = LogBuilder(folder)
    for _ in range(2):
        seal(made.segment(40, 60, topics=topics))
    made.segment(70, 30, topics=topics)
    stop(made)
    return made


def findings(folder: Path, running: bool = False) -> list[LogFinding]:
    """Of a verification, without the notes on recorded gaps."""
    found = [report for report in verify(folder, running) if isinstance(report, LogFinding)]
    return [finding for finding in found if not finding.what.startswith("gap: ")]
