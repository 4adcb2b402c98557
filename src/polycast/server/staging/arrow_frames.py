"""Frames of staged rows: Arrow IPC streams. A frame is accepted or refused as a whole.

    topic     string, up to limits.topic_bytes
    payload   binary, up to limits.payload_bytes
    format    string: bytes, text, json or none; null, or no such column: bytes

Arrow validates all input before anything is computed from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha1

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import PolycastError
from polycast.log.read.work import Work
from polycast.log.write.bulk import STAGED_SCHEMA
from polycast.model import Format, Limits, Stage

TYPES = {
    "topic": (pa.string(), pa.large_string()),
    "payload": (pa.binary(), pa.large_binary(), pa.string(), pa.large_string()),
    "format": (pa.string(), pa.large_string()),
}
REQUIRED = ("topic", "payload")
FORMATS = pa.array([format_.value for format_ in Format])
COMPRESSION_FIELD = 10
"""The field of a record batch message that declares compression; see Message.fbs of Arrow."""
HEADER_FIELD = 8
EARLY_COMPRESSION = b"ARROW:experimental_compression"
"""The key of the custom metadata in which Arrow 0.17 declared compression. Arrow still reads it."""
MERGED_BYTES = 1024 * 1024
MERGED_PARTS = 64
"""Small record batches are merged up to this many rows: each costs kilobytes beside its rows."""


class StageError(PolycastError):
    """A frame, a commit or an abort is refused. `reason` is the label of the metric."""

    def __init__(self, code: int, message: str, reason: str = "stage") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


def read_frame(stage: Stage, before: int, limits: Limits) -> Work[list[pa.RecordBatch]]:
    """The rows of a frame, with `STAGED_SCHEMA`; `before` rows are in the stage already."""
    found = sha1(stage.data, usedforsecurity=False).hexdigest() if stage.sha1 else ""
    if found != stage.sha1:
        raise StageError(422, f"the payload's sha1 is {found}, its header says {stage.sha1[:60]!r}; send it again")
    return (yield from read_parts(stage.data, before, limits))


def read_parts(data: bytes | memoryview, before: int, limits: Limits) -> Work[list[pa.RecordBatch]]:
    """Yields after each record batch: a frame can have very many."""
    merged = MergedParts()
    for batch in _batches(data):
        _check_whole(batch, before)
        part = _to_part(batch)
        _check_rows(part, before, limits)
        before += part.num_rows
        merged.add(part)
        yield
    return merged.finish()


class MergedParts:
    """Collects record batches, and merges small ones."""

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._small: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, part: pa.RecordBatch) -> None:
        if not part.num_rows:
            return
        if len(self._small) == MERGED_PARTS or self._size + part.nbytes > MERGED_BYTES:
            self.finish()
        self._small.append(part)
        self._size += part.nbytes

    def finish(self) -> list[pa.RecordBatch]:
        if self._small:
            self._parts.append(_joined(self._small))
        self._small, self._size = [], 0
        return self._parts


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _batches(data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
        schema = _read_schema(messages.read_next_message())
        _check_schema(schema)
        for message in messages:
            if _is_compressed(bytes(message.metadata)):
                raise StageError(422, "the rows are compressed; write the Arrow stream without compression")
            yield pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowException, OSError, StopIteration, struct.error, UnicodeDecodeError) as error:
        raise StageError(422, f"the payload is no Arrow IPC stream: {error or 'it has no schema'}") from error


def _read_schema(message: pa.Message) -> pa.Schema:
    """Arrow verifies the kinds of messages that it knows. pyarrow takes any other kind for a schema, and can
    crash."""
    metadata = bytes(message.metadata)
    if message.type != "schema" or not _field(metadata, _table(metadata, 0), HEADER_FIELD):
        found = f"its first message is no schema but {message.type}"
        raise StageError(422, f"the payload is no Arrow IPC stream: {found}")
    return pa.ipc.read_schema(message)


def _is_compressed(metadata: bytes) -> bool:
    """Checked before reading: decompressed data can have any size."""
    if EARLY_COMPRESSION in metadata:
        return True
    root = _table(metadata, 0)
    header = _field(metadata, root, HEADER_FIELD)
    return bool(header and _field(metadata, _table(metadata, header), COMPRESSION_FIELD))


def _table(metadata: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", metadata, at)[0])


def _field(metadata: bytes, table: int, field: int) -> int:
    """The position of a field in a flatbuffer table; 0 if the field is missing."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0 or struct.unpack_from("<H", metadata, vtable)[0] <= field:
        return 0
    position = int(struct.unpack_from("<H", metadata, vtable + field)[0])
    return table + position if position else 0


# -- columns ---------------------------------------------------------------------------------------------


def _check_schema(schema: pa.Schema) -> None:
    for name in REQUIRED:
        if name not in schema.names:
            found = ", ".join(schema.names) or "none"
            raise StageError(422, f"there is no column {name}; the columns are {found}")
    for field in schema:
        if field.name not in TYPES or schema.names.count(field.name) > 1:
            raise StageError(422, f"the column {field.name} is one too many; known are {', '.join(TYPES)}")
        if field.type not in TYPES[field.name]:
            wanted = STAGED_SCHEMA.field(field.name).type
            raise StageError(422, f"the column {field.name} is of type {field.type}; cast it to {wanted}")


def _check_whole(batch: pa.RecordBatch, before: int) -> None:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise StageError(422, f"the rows from {before:,} on cannot be read: {error}") from error


def _to_part(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = batch.num_rows
    formats = batch["format"] if "format" in batch.schema.names else pa.nulls(rows, pa.string())
    columns = (batch["topic"], batch["payload"], formats)
    cast = [column.cast(field.type) for column, field in zip(columns, STAGED_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=STAGED_SCHEMA)


# -- rows ------------------------------------------------------------------------------------------------


def _check_rows(part: pa.RecordBatch, before: int, limits: Limits) -> None:
    for name, limit, setting in (
        ("topic", limits.topic_bytes, "limits.topic_bytes"),
        ("payload", limits.payload_bytes, "limits.payload_bytes"),
    ):
        column = part[name]
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise StageError(422, f"row {before + row:,} has no {name}; every row needs one")
        sizes = pc.binary_length(column)
        if (pc.max(sizes).as_py() or 0) > limit:
            row = pc.index(pc.greater(sizes, limit), True).as_py()
            found = f"the {name} of row {before + row:,} has {sizes[row].as_py():,} bytes"
            raise StageError(422, f"{found}, the limit is {limit:,}; raise {setting} to accept it")
    _check_formats(part["format"], before)


def _check_formats(formats: pa.Array, before: int) -> None:
    if formats.null_count == len(formats):
        return
    right = pc.or_(pc.is_in(formats, value_set=FORMATS), formats.is_null())
    row = pc.index(right, False).as_py()
    if row >= 0:
        known = ", ".join(FORMATS.to_pylist())
        found = f"the format of row {before + row:,} is {formats[row].as_py()!r}"
        raise StageError(422, f"{found}, known are {known}")
