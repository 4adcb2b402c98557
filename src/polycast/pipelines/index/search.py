"""Searches payloads for a text, or for the value of a field of a JSON object.

The search runs in Arrow inside the workers; only matching rows leave them. A payload is decoded as JSON only if it
contains the bytes of the value, or a backslash, which may encode them.

A field is named by its path, `order.customer.id`. Values are compared as text: strings by their content, other
values as written, so `1.0` is not `1`. Objects and arrays never match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import UsageError
from polycast.log.files.format import SCHEMA
from polycast.pipelines.index.blocks import PayloadIndex
from polycast.pipelines.index.grams import PayloadFilter
from polycast.pipelines.runtime.worker_tasks import WorkerTask, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BACKSLASH = b"\\"
UNLIMITED = 2**62
GROWTH = 4
NO_VALUE = (b"{", b"[")
ROWS = "offset long, topic string, sequence long, time timestamp, dialect string, format string, payload binary, "
ROWS += "source string"


class FieldMatch(NamedTuple):
    path: tuple[str, ...]
    value: str

    @property
    def texts(self) -> tuple[bytes, ...]:
        """Bytes that the payload must contain if it has no backslash."""
        return tuple(text.encode(errors="surrogateescape") for text in (self.value, *self.path))


class SearchTerms(NamedTuple):
    text: bytes = b""
    fields: tuple[FieldMatch, ...] = ()

    def may_be_in(self, payloads: PayloadFilter) -> bool:
        """Whether a block with this filter can contain a match."""
        return payloads.may_have_text(self.text) and all(
            payloads.may_have_value(*field.texts) for field in self.fields
        )


def to_field(text: str) -> FieldMatch:
    name, equals, value = text.partition("=")
    path = tuple(name.split("."))
    if not equals or not all(path):
        raise UsageError(f"--field {text} is not NAME=VALUE", "for example: --field order.id=17")
    return FieldMatch(path, value)


# -- one batch -------------------------------------------------------------------------------------------


def matching(batch: pa.RecordBatch, terms: SearchTerms) -> pa.RecordBatch:
    if terms.text:
        batch = batch.filter(pc.match_substring(batch["payload"], terms.text))
    for field in terms.fields:
        batch = batch.filter(_may_have(batch["payload"], field))
    if not terms.fields or not batch.num_rows:
        return batch
    buffers = (payload.as_buffer() for payload in batch["payload"])
    mask = [all(value_at(buffer, field.path) == field.value for field in terms.fields) for buffer in buffers]
    return batch.filter(pa.array(mask, pa.bool_()))


def _may_have(payloads: pa.Array, field: FieldMatch) -> pa.Array:
    plain = reduce(pc.and_, [pc.match_substring(payloads, text) for text in field.texts])
    return pc.or_(pc.match_substring(payloads, BACKSLASH), plain)


def value_at(payload: pa.Buffer | bytes | memoryview, path: Sequence[str]) -> str | None:
    """The value of a field as text; None if there is none."""
    found: memoryview = memoryview(payload)
    try:
        for name in path:
            found = memoryview(OBJECT.decode(found)[name])
        return _to_text(bytes(found))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return None


def _to_text(raw: bytes) -> str | None:
    if raw.startswith(NO_VALUE):
        return None
    return msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()


OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

# -- search ----------------------------------------------------------------------------------------------


def search(
    spark: SparkSession, tasks: Sequence[WorkerTask], terms: SearchTerms, index: Path | None = None, limit: int = 0
) -> DataFrame:
    """Grain: one row per match, with all columns of the log, in the order of the tasks.

    `limit` applies to each task.
    """

    def work(task: WorkerTask) -> Iterator[pa.RecordBatch]:
        left = limit or UNLIMITED
        for batch in (without_skippable(task, terms, PayloadIndex(index)) if index else task).read():
            rows = matching(batch, terms).slice(0, left)
            left -= rows.num_rows
            if rows.num_rows:
                yield rows
            if not left:
                return

    return run_tasks(spark, tasks, work, ROWS)


def search_all(
    spark: SparkSession, tasks: Sequence[WorkerTask], terms: SearchTerms, index: Path | None = None, limit: int = 0
) -> Iterator[pa.RecordBatch]:
    """Sorted by offset. Runs some tasks at a time; with a limit, more each time, because results stay small."""
    count = 2 * spark.sparkContext.defaultParallelism
    left = limit or UNLIMITED
    while tasks and left:
        some, tasks = tasks[:count], tasks[count:]
        rows = search(spark, some, terms, index, limit and left).toArrow().sort_by("offset").slice(0, left)
        left -= rows.num_rows
        count *= GROWTH if limit else 1
        yield from rows.to_batches()


def without_skippable(task: WorkerTask, terms: SearchTerms, index: PayloadIndex) -> WorkerTask:
    """Runs in a worker: removes the blocks that the index excludes."""
    if not task.pieces:
        return task
    start = min(piece.first for piece in task.pieces)
    stop = max(piece.next for piece in task.pieces)
    return task.without(index.skippable(start, stop, terms.may_be_in))


COLUMNS = tuple(SCHEMA.names)
