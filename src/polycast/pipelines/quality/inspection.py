"""Inspects a partition of the log inside a Spark task, column by column.

Only payloads that look like JSON are inspected one by one. The result is small: runs of consecutive sequences,
invalid JSON payloads, and the first and last message with each field and type.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polycast.model import RESERVED_PREFIX, Format
from polycast.pipelines.quality.json_shapes import fields_of, shape_of

REFUSALS = RESERVED_PREFIX + "events/refuse"
"""The topic of the broker's events about rejected input."""
JSON_STARTS = pa.array([b"{", b"["], pa.binary())
EXAMPLES = 20
"""Invalid JSON payloads listed per topic."""
SHAPES_LIMIT = 2000
"""Shapes per topic and partition. Objects with data as field names would have unlimited shapes."""
INSPECTED = "first long, inspected binary"


class SequenceRun(msgspec.Struct, array_like=True):
    """Messages with consecutive sequences."""

    first: int
    next: int
    offset: int
    """Offset of the first message."""
    micros: int
    """Time of the first message."""
    last_offset: int
    last_micros: int


class MessageRef(msgspec.Struct, array_like=True):
    """A message: its number among the JSON messages of its topic, its offset and its time."""

    number: int
    offset: int
    micros: int


class TopicInspection(msgspec.Struct):
    messages: int = 0
    runs: list[SequenceRun] = []
    json: int = 0
    bad: int = 0
    """Declared as JSON, but invalid."""
    doubtful: int = 0
    """Starts like JSON, but is invalid and not declared as JSON."""
    examples: list[MessageRef] = []
    fields: dict[str, dict[str, MessageRef]] = {}
    """First message by field and type."""
    spans: dict[str, tuple[int, int]] = {}
    """Number of the last message, and number of messages, by field."""


class PartitionInspection(msgspec.Struct):
    topics: dict[str, TopicInspection] = {}
    refused: dict[str, dict[str, int]] = {}
    """Wrong or missing checksums by connection and reason."""


class Shape(NamedTuple):
    first: MessageRef
    last: int
    times: int


def inspect(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row per non-empty partition."""
    inspector = Inspector()
    first = -1
    for batch in batches:
        if batch.num_rows:
            first = batch["offset"][0].as_py() if first < 0 else first
            inspector.add(batch)
    if first >= 0:
        cells = [pa.array([first], pa.int64()), pa.array([msgspec.msgpack.encode(inspector.end())], pa.binary())]
        yield pa.RecordBatch.from_arrays(cells, ["first", "inspected"])


class Inspector:
    def __init__(self) -> None:
        self._found = PartitionInspection()
        self._shapes: dict[str, dict[Hashable, Shape]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        refusals = pc.equal(batch["topic"], REFUSALS)
        if pc.any(refusals).as_py():
            self._add_refusals(batch.filter(refusals)["payload"])
            batch = batch.filter(pc.invert(refusals))
        if batch.num_rows:
            self._add_runs(batch)
            self._add_json(batch)

    def end(self) -> PartitionInspection:
        for topic, shapes in self._shapes.items():
            _add_fields_of(shapes, self._found.topics[topic])
        return self._found

    def _add_refusals(self, payloads: pa.Array) -> None:
        for payload in payloads.to_pylist():
            event = msgspec.json.decode(payload)
            if event["reason"].startswith("checksum"):
                reasons = self._found.refused.setdefault(event["connection"], {})
                reasons[event["reason"]] = reasons.get(event["reason"], 0) + event["count"]

    def _add_runs(self, batch: pa.RecordBatch) -> None:
        for topic, count, run in to_runs(batch):
            seen = self._found.topics.setdefault(topic, TopicInspection())
            seen.messages += count
            last = seen.runs[-1] if seen.runs else None
            if last and last.next == run.first:
                last.next, last.last_offset, last.last_micros = run.next, run.last_offset, run.last_micros
            else:
                seen.runs.append(run)

    def _add_json(self, batch: pa.RecordBatch) -> None:
        """Decodes payloads that are declared as JSON or start like it."""
        declared = pc.equal(batch["format"], str(Format.JSON))
        starts = pc.is_in(pc.binary_slice(batch["payload"], 0, 1), value_set=JSON_STARTS)
        wanted = pc.or_(declared, starts)
        if not pc.any(wanted).as_py():
            return
        found = batch.append_column("declared", declared).filter(wanted)
        columns = (
            found["topic"],
            found["payload"],
            found["offset"],
            found["time"].cast(pa.int64()),
            found["declared"],
        )
        decode = msgspec.json.Decoder().decode
        for topic, payload, offset, micros, is_declared in zip(
            *(each.to_pylist() for each in columns), strict=True
        ):
            seen = self._found.topics[topic]
            ref = MessageRef(seen.json, offset, micros)
            try:
                shape = shape_of(decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                _add_bad(seen, ref, is_declared)
                continue
            self._add_shape(topic, shape, ref)
            seen.json += 1

    def _add_shape(self, topic: str, shape: Hashable, ref: MessageRef) -> None:
        shapes = self._shapes.setdefault(topic, {})
        known = shapes.get(shape)
        if known:
            shapes[shape] = Shape(known.first, ref.number, known.times + 1)
        elif len(shapes) < SHAPES_LIMIT:
            shapes[shape] = Shape(ref, ref.number, 1)


def _add_bad(seen: TopicInspection, ref: MessageRef, is_declared: bool) -> None:
    seen.bad += is_declared
    seen.doubtful += not is_declared
    if len(seen.examples) < EXAMPLES:
        seen.examples.append(ref)


def _add_fields_of(shapes: dict[Hashable, Shape], seen: TopicInspection) -> None:
    for shape, (first, last, count) in shapes.items():
        fields = set(fields_of(shape))
        for path, kind in fields:
            kinds = seen.fields.setdefault(path, {})
            if kind not in kinds or first.number < kinds[kind].number:
                kinds[kind] = first
        for path in {path for path, _ in fields}:
            latest, so_far = seen.spans.get(path, (0, 0))
            seen.spans[path] = (max(last, latest), so_far + count)


def to_runs(batch: pa.RecordBatch) -> Iterator[tuple[str, int, SequenceRun]]:
    """Topic, number of messages and run; the runs of a topic are in order of offset."""
    topics = batch["topic"].dictionary_encode()
    codes = topics.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    codes, sequences = codes[order], batch["sequence"].to_numpy()[order]
    offsets, micros = batch["offset"].to_numpy()[order], batch["time"].cast(pa.int64()).to_numpy()[order]
    breaks = (np.diff(codes) != 0) | (np.diff(sequences) != 1)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    ends = np.concatenate((starts[1:], [len(codes)])) - 1
    names = topics.dictionary.to_pylist()
    columns = (
        sequences[starts],
        sequences[ends] + 1,
        offsets[starts],
        micros[starts],
        offsets[ends],
        micros[ends],
    )
    runs = map(SequenceRun, *(column.tolist() for column in columns))
    yield from zip(
        [names[code] for code in codes[starts].tolist()], (ends - starts + 1).tolist(), runs, strict=True
    )
