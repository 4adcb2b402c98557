"""Large atomic and idempotent batches: rows are staged, by any number of processes, and committed as one batch.

    with Stager("localhost", "night-2026-11-15") as stager:
        stager.stage("part 1", batches)                    # here, or in another process of the same identity
        stager.commit(["part 1", "part 2"], rows=5000)     # idempotent: a repeat publishes nothing

For `hermod`, and a broker with a log. The only part of the client that needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from polycast.client.connect import to_client_session
from polycast.client.connection import ClientConnection
from polycast.client.failures import ACK_SECONDS
from polycast.dialects.client_session import WINDOW, PendingAcks
from polycast.errors import RefusedError, UsageError

FRAME_BYTES = 4 * 1024 * 1024
COMMIT_SECONDS = 600.0
"""Committing a large batch takes long."""
TYPES = {"topic": pa.string(), "payload": pa.binary(), "format": pa.string()}
OPTIONAL = ("format",)
NO_ROWS = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in TYPES.values()], names=list(TYPES))
HINTS = {
    403: "stage and commit as one identity that may publish to every topic of the rows",
    404: "run it again: nothing was published",
    413: "the frame is too large for the broker: raise its limits.payload_bytes",
    501: "start the broker without --no-log",
    507: "fewer rows a batch (maxOffsetsPerTrigger), or raise the broker's limit",
}


class Stager(ClientConnection):
    """A connection for the stages of one batch. `at` as in `connect`."""

    def __init__(self, at: str, batch_id: str, timeout: float = 10.0) -> None:
        self._batch_id = batch_id
        super().__init__(to_client_session("hermod", at, publishing=True), timeout)

    def __enter__(self) -> Stager:
        return self

    def stage(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Stages rows under that name, and replaces what was staged under it before; returns their number.

        The columns are topic, payload and, optionally, format.
        """
        return self.stage_frames(name, to_frames(batches))

    def stage_frames(self, name: str, frames: Iterable[tuple[int, memoryview]]) -> int:
        """As `stage`, with rows from `to_frames`."""
        acks = PendingAcks()
        rows = 0
        for count, frame in frames:
            self.send(self.session.to_stage(self._batch_id, name, rows, frame, acks))
            rows += count
            self.wait(lambda: len(self.session.pending) < WINDOW, ACK_SECONDS)
            if acks.error:
                break
        self._finish(acks, ACK_SECONDS)
        return rows

    def commit(self, names: Sequence[str], rows: int | None = None) -> int:
        """Publishes all rows of these stages, in this order, unless the batch was published before; returns their
        number.

        With `rows`, only if there are as many. RefusedError: the batch was published with another number of rows.
        Stages of the batch with other names are dropped.
        """
        acks = PendingAcks()
        self.send(self.session.to_commit(self._batch_id, names, rows, acks))
        self._finish(acks, COMMIT_SECONDS)
        if rows is not None:
            self.session.check_count(acks, self._batch_id, rows)
        return acks.accepted

    def abort(self, names: Sequence[str] | None = None) -> None:
        """Drops these stages; without names, all stages of the batch."""
        acks = PendingAcks()
        self.send(self.session.to_abort(self._batch_id, names, acks))
        self._finish(acks, ACK_SECONDS)

    def _finish(self, acks: PendingAcks, seconds: float) -> None:
        try:
            self.wait(lambda: not acks.pending, seconds)
        except RefusedError as error:
            raise RefusedError(str(error), error.code, HINTS.get(error.code, "")) from error
        if refused := acks.error:
            raise RefusedError(str(refused), refused.code, HINTS.get(refused.code, ""))


# -- frames ----------------------------------------------------------------------------------------------


def to_frames(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, memoryview]]:
    """The number of rows, and the rows as an Arrow stream. At least one frame."""
    parts: list[pa.RecordBatch] = []
    size = 0
    for part in _parts(batches):
        if parts and (size + part.nbytes > FRAME_BYTES or part.schema != parts[0].schema):
            yield _to_frame(parts)
            parts, size = [], 0
        parts.append(part)
        size += part.nbytes
    yield _to_frame(parts or [NO_ROWS])


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parts that fit into a frame, unless one row does not."""
    for batch in batches:
        whole = _to_columns(batch)
        rows = max(1, whole.num_rows * FRAME_BYTES // max(1, whole.nbytes))
        for start in range(0, whole.num_rows, rows):
            yield from _halves(whole.slice(start, rows))


def _halves(part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves a part whose rows have very different sizes."""
    if part.num_rows <= 1 or part.nbytes <= 2 * FRAME_BYTES:
        yield part
    else:
        middle = part.num_rows // 2
        yield from _halves(part.slice(0, middle))
        yield from _halves(part.slice(middle))


def _to_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = [name for name in TYPES if name in batch.schema.names]
    missing = [name for name in TYPES if name not in names and name not in OPTIONAL]
    if missing:
        found = ", ".join(batch.schema.names) or "none"
        raise UsageError(
            f"there is no column {missing[0]}; the columns are {found}", "rows need topic and payload"
        )
    try:
        columns = [batch[name].cast(TYPES[name]) for name in names]
    except pa.ArrowException as error:
        raise UsageError(f"rows cannot be messages: {error}", "topic is a string, payload binary") from error
    return pa.RecordBatch.from_arrays(columns, names=names)


def _to_frame(parts: list[pa.RecordBatch]) -> tuple[int, memoryview]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0].schema) as stream:
        for part in parts:
            stream.write_batch(part)
    return sum(part.num_rows for part in parts), memoryview(sink.getvalue())
