"""SQL over topics, of what is there and what comes: the rows that a query yields are published or kept."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it
from pyspark.sql.types import BinaryType, DataType, StringType

from polycast.errors import UsageError
from polycast.model import Exact, parse_patterns
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun
from polycast.pipelines.sql.batch_query import create_view
from polycast.pipelines.sql.gate import CheckedQuery, check_query, to_frame
from polycast.pipelines.sql.query_errors import to_query_error
from polycast.pipelines.sql.statement import Statement, to_views

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ANY_TOPIC = ">"
DIGEST_DIGITS = 12
CHANGES = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"
"""What Spark calls it where totals have no end."""
WATERMARK = (
    "say when they are done: FROM messages WATERMARK time DELAY OF INTERVAL 10 SECONDS and GROUP BY "
    "window(time, '1 minute'); or publish every change with --into TOPIC"
)

Put = Callable[["DataFrame", int], None]


@dataclass(frozen=True)
class StreamTarget:
    """Where the rows of a stream go: one of the two."""

    into: str = ""
    """A topic; or `out.>`, where each row has its own below `out.`"""
    to: Path | None = None

    @property
    def prefix(self) -> str:
        return self.into.removesuffix(ANY_TOPIC) if self.into.endswith(ANY_TOPIC) else ""


@dataclass(frozen=True)
class NoSettings:
    pass


def to_pipeline(statement: Statement, target: StreamTarget) -> Pipeline:
    """The same query to the same target goes on where it stopped."""
    place = str(target.to.absolute()) if target.to else ""
    identity = "\0".join([statement.text, *map("=".join, statement.views.items()), target.into, place])
    name = "sql-" + hashlib.sha256(identity.encode()).hexdigest()[:DIGEST_DIGITS]
    return Pipeline(
        name,
        "A query that goes on.",
        NoSettings,
        partial(_start, statement, target),
        writes=target.into or place,
        publishes=lambda settings: bool(target.into),
    )


def check_target(target: StreamTarget) -> None:
    """As far as that can be done without Spark."""
    if target.to:
        _check_folder(target.to)


def _check_query(checked: CheckedQuery, views: Mapping[str, str], target: StreamTarget) -> None:
    if checked.command:
        raise UsageError("only what SELECT finds can be published or kept", "leave out --into and --to")
    read = next((name for name, patterns in views.items() if _names(patterns, target.into)), "")
    if target.into and read:
        raise UsageError(f"the query would read what it publishes: `{read}`", "publish to another topic")


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--to {folder}: {(error.strerror or str(error)).lower()}", "name a folder") from error


def _names(patterns: str, topic: str) -> bool:
    return Exact(topic) in parse_patterns(patterns)


def _start(statement: Statement, target: StreamTarget, run: PipelineRun) -> StreamingQuery:
    checked = check_query(run.spark, statement.text)
    views = to_views(statement, checked)
    _check_query(checked, views, target)
    for name, patterns in views.items():
        create_view(name, _without(run.messages(patterns), target))
    rows = to_frame(run.spark, checked)
    if not rows.isStreaming:
        raise UsageError("the query reads no messages: there is nothing to wait for", "leave out --into and --to")
    if target.to:
        return _follow(statement, run, rows, target, partial(_write_files, run.pipeline.name, target.to))
    return _follow(statement, run, to_messages(rows, target), target, run.publish)


def _without(rows: DataFrame, target: StreamTarget) -> DataFrame:
    """Nothing of what the query itself publishes, or else it would never be done."""
    if target.prefix:
        return rows.where(~F.col("topic").startswith(target.prefix))
    return rows.where(F.col("topic") != target.into) if target.into else rows


def _follow(
    statement: Statement, run: PipelineRun, rows: DataFrame, target: StreamTarget, put: Put
) -> StreamingQuery:
    """Rows as they are found; for totals that go on changing, those that have changed."""
    try:
        return run.write(rows, "append").foreachBatch(put).start()
    except AnalysisException as error:
        if error.getCondition() != CHANGES:
            raise _to_stream_error(error, statement) from None
    if target.to:
        raise UsageError("these totals go on changing, and files do not", WATERMARK)
    try:
        return run.write(rows, "update").foreachBatch(ChangedTotals(put)).start()
    except AnalysisException as error:
        raise _to_stream_error(error, statement) from None


class ChangedTotals:
    """A total over everything comes with every batch, also if it is what it was.

    Told each time, it would never end: what is told makes the next batch.
    """

    def __init__(self, put: Put) -> None:
        self._put = put
        self._last: list[Any] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:
        kept = rows.persist()
        try:
            found = kept.collect() if kept.count() == 1 else []
            if not found or found != self._last:
                self._put(kept, batch)
            self._last = found
        finally:
            kept.unpersist()


def _to_stream_error(error: AnalysisException, statement: Statement) -> UsageError:
    said = str(to_query_error(error, statement.text)).partition(";")[0]
    hint = "without --into and --to it is asked once, of what is there"
    return UsageError(f"this query cannot go on with what comes: {said}", hint)


# -- where it goes ---------------------------------------------------------------------------------------


def to_messages(rows: DataFrame, target: StreamTarget) -> DataFrame:
    """One message for each row: (topic, payload, format). A payload alone stays as it is, else rows are JSON."""
    kinds = {field.name: type(field.dataType) for field in rows.schema.fields}
    raw = kinds.get("payload") in (StringType, BinaryType)
    own_topic = kinds.get("topic") is StringType
    if target.prefix and not (raw and own_topic):
        found = ", ".join(f"{name} {kind.typeName()}" for name, kind in kinds.items())
        hint = f"SELECT ... AS topic, ... AS payload: the first text, the other text or bytes; it has {found}"
        raise UsageError(f"--into {target.into} takes the columns topic and payload", hint)
    format_ = F.col("format") if kinds.get("format") is StringType else F.lit("bytes")
    if target.prefix:
        topic = F.concat(F.lit(target.prefix), F.col("topic"))
        return rows.select(topic.alias("topic"), F.col("payload").cast("binary"), format_.alias("format"))
    topic = F.lit(target.into).alias("topic")
    if raw and kinds.keys() <= {"payload", "format"}:
        return rows.select(topic, F.col("payload").cast("binary"), format_.alias("format"))
    return rows.select(topic, _to_object(rows).cast("binary").alias("payload"), F.lit("json").alias("format"))


def _to_object(rows: DataFrame) -> Column:
    fields = [_to_text(rows[name], kind).alias(name) for name, kind in _fields(rows)]
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"})


def _fields(rows: DataFrame) -> list[tuple[str, DataType]]:
    names = [field.name for field in rows.schema.fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"two columns are called {twice}", f"name one of them: SELECT ... AS other_{twice}")
    return [(field.name, field.dataType) for field in rows.schema.fields]


def _to_text(column: Column, kind: DataType) -> Column:
    """Bytes are text where they can be, else base64."""
    if not isinstance(kind, BinaryType):
        return column
    text = column.cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.base64(column))


def _write_files(name: str, folder: Path, rows: DataFrame, batch: int) -> None:
    """As files of this batch, in place of those that an earlier try may have left."""
    made = folder.absolute() / f".{name}-{batch}"
    rows.write.mode("overwrite").parquet(str(made))
    for file in folder.glob(f"{name}-{batch:08}-*.parquet"):
        file.unlink()
    for number, file in enumerate(sorted(made.glob("*.parquet"))):
        if pq.read_metadata(file).num_rows:
            file.rename(folder / f"{name}-{batch:08}-{number:03}.parquet")
    shutil.rmtree(made)
