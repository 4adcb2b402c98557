"""Rows to be staged at a broker, as Arrow streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kit import hermod
from kit.wire import Peer

Row = tuple[str, bytes]


def to_stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, **options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def to_frame(rows: Sequence[Row], formats: Sequence[str | None] | None = None) -> bytes:
    topics, payloads = [topic for topic, _ in rows], [payload for _, payload in rows]
    columns = {"topic": pa.array(topics, pa.string()), "payload": pa.array(payloads, pa.binary())}
    if formats is not None:
        columns["format"] = pa.array(formats, pa.string())
    return to_stream(pa.record_batch(columns))


def stage(peer: Peer, batch_id: str, name: str, rows: Sequence[Row], before: int = 0) -> None:
    """In one frame, behind as many as have come before."""
    peer.send(hermod.stage(batch_id, name, to_frame(rows)))
    peer.expect(hermod.ok(before + len(rows)))


def commit(peer: Peer, batch_id: str, *names: str, rows: int) -> None:
    peer.send(hermod.commit(batch_id, *names))
    peer.expect(hermod.ok(rows))


def numbered(topic: str, count: int, size: int = 0) -> list[Row]:
    return [(topic, (b"%d" % number).ljust(size, b".")) for number in range(count)]
