"""Numbered bursts with other bytes between their payloads, and the rows expected for them."""

from __future__ import annotations

from array import array
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from polycast.log.files.columns import SourcedBurst, new_packer
from polycast.log.files.encoding import encode_bursts
from polycast.log.files.format import NOTHING_BEFORE, SCHEMA, Layout, read_batch, read_header
from polycast.model import Burst, Format

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPICS = [b"a", b"b", "höhe".encode(), b"", b"a.long.topic.of.some.kind"]
messages = st.tuples(st.sampled_from(TOPICS), st.binary(max_size=9), st.sampled_from(list(Format)))


def numbered(
    messages: list[tuple[bytes, bytes, Format]], offset: int = 0, sequences: Counter[bytes] | None = None
) -> Burst:
    """`sequences` has the next sequence of each topic, and is updated."""
    burst = Burst.of("some", messages)
    burst.offset = offset
    reached = Counter[bytes]() if sequences is None else sequences
    for run, first, last in burst.runs():
        burst.sequences.append(reached[burst.topics[run]])
        reached[burst.topics[run]] += last - first
    return burst


@st.composite
def pieces(draw: st.DrawFn, min_size: int = 0) -> list[SourcedBurst]:
    """Mostly without a gap; where there is one, in the offsets or in a topic's sequences, is drawn as well."""
    sequences = Counter[bytes]()
    offset = draw(st.integers(0, 2**40))
    found: list[SourcedBurst] = []
    for some in draw(st.lists(st.lists(messages, min_size=1, max_size=9), min_size=min_size, max_size=5)):
        burst = numbered(some, offset, sequences)
        _spread(burst, draw(st.binary(max_size=3)), draw(st.booleans()))
        burst.dialect = draw(st.sampled_from(["hermod", "ubre"]))
        micros = draw(st.integers(0, 2**51))
        found.append(SourcedBurst(burst, draw(st.sampled_from([b"", b"tcp://[::1]:5000"])), micros))
        offset += len(burst) + draw(st.sampled_from([0, 0, 0, 1, 1000]))
        sequences[draw(st.sampled_from(TOPICS))] += draw(st.sampled_from([0, 0, 0, 1, 1000]))
    return found


def _spread(burst: Burst, between: bytes, mutable: bool) -> None:
    """The payloads as a read receives them: between frames, possibly in a bytearray."""
    block = bytearray()
    starts, ends = array("q"), array("q")
    for message in burst.messages():
        block += between
        starts.append(len(block))
        block += message.payload
        ends.append(len(block))
    burst.block, burst.starts, burst.ends = (block if mutable else bytes(block)), starts, ends


def to_batch(pieces: list[SourcedBurst]) -> pa.RecordBatch:
    """As a reader of the log gets them."""
    layout = Layout.of(SCHEMA, 1)
    group = memoryview(b"".join(encode_bursts(pieces, new_packer(), layout, NOTHING_BEFORE, 0).pieces))
    return read_batch(group, 0, read_header(group, 0, layout.seed), layout).replace_schema_metadata()


def rows_of(pieces: list[SourcedBurst]) -> list[Row]:
    """The expected rows."""
    rows: list[Row] = []
    for burst, source, micros in pieces:
        messages = list(burst.messages())
        for run, first, last in burst.runs():
            rows += [
                {
                    "offset": burst.offset + i,
                    "topic": messages[i].topic,
                    "sequence": burst.sequences[run] + i - first,
                    "time": EPOCH + timedelta(microseconds=micros),
                    "dialect": burst.dialect,
                    "format": str(messages[i].format),
                    "payload": messages[i].payload,
                    "source": source.decode(),
                }
                for i in range(first, last)
            ]
    return rows
