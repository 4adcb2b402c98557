"""Runs SQL queries as streams; the rows are published to topics or written to files."""

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
from pyspark.sql import functions as F  # noqa: N812 -- the usual alias
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
"""Spark's error condition for aggregates without a watermark in append mode."""
WATERMARK = (
    "add a watermark and a window: FROM messages WATERMARK time DELAY OF INTERVAL 10 SECONDS and GROUP BY "
    "window(time, '1 minute'); or publish every change with --into TOPIC"
)

Put = Callable[["DataFrame", int], None]


@dataclass(frozen=True)
class StreamTarget:
    """Either a topic or a folder."""

    into: str = ""
    """A topic, or a prefix such as `out.>`: the column `topic` of each row follows the prefix."""
    to: Path | None = None

    @property
    def prefix(self) -> str:
        return self.into.removesuffix(ANY_TOPIC) if self.into.endswith(ANY_TOPIC) else ""


@dataclass(frozen=True)
class NoSettings:
    pass


def to_pipeline(statement: Statement, target: StreamTarget) -> Pipeline:
    """The same query and target resume from the same checkpoint."""
    folder = str(target.to.absolute()) if target.to else ""
    identity = "\0".join([statement.text, *map("=".join, statement.views.items()), target.into, folder])
    name = "sql-" + hashlib.sha256(identity.encode()).hexdigest()[:DIGEST_DIGITS]
    return Pipeline(
        name,
        NoSettings,
        partial(_start, statement, target),
        writes=target.into or folder,
        publishes=lambda settings: bool(target.into),
    )


def check_target(target: StreamTarget) -> None:
    """Checks what does not need Spark."""
    if target.to:
        try:
            target.to.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"--to {target.to}: {reason}", "name a folder") from error


def _check_query(checked: CheckedQuery, views: Mapping[str, str], target: StreamTarget) -> None:
    if checked.command:
        raise UsageError("--into and --to take the rows of a SELECT", "leave out --into and --to")
    read = next((name for name, patterns in views.items() if Exact(target.into) in parse_patterns(patterns)), "")
    if target.into and read:
        raise UsageError(f"the query would read its own output: `{read}`", "publish to another topic")


def _start(statement: Statement, target: StreamTarget, run: PipelineRun) -> StreamingQuery:
    checked = check_query(run.spark, statement.text)
    views = to_views(statement, checked)
    _check_query(checked, views, target)
    for name, patterns in views.items():
        create_view(name, _without(run.messages(patterns), target))
    rows = to_frame(run.spark, checked)
    if not rows.isStreaming:
        raise UsageError("the query reads no messages, so it cannot be a stream", "leave out --into and --to")
    if target.to:
        return _follow(statement, run, rows, target, partial(_write_files, run.pipeline.name, target.to))
    return _follow(statement, run, to_messages(rows, target), target, run.publish)


def _without(rows: DataFrame, target: StreamTarget) -> DataFrame:
    """Excludes the query's own output; otherwise the query would never finish."""
    if target.prefix:
        return rows.where(~F.col("topic").startswith(target.prefix))
    return rows.where(F.col("topic") != target.into) if target.into else rows


def _follow(
    statement: Statement, run: PipelineRun, rows: DataFrame, target: StreamTarget, put: Put
) -> StreamingQuery:
    """Uses append mode, or update mode for aggregates without a watermark."""
    try:
        return run.write(rows, "append").foreachBatch(put).start()
    except AnalysisException as error:
        if error.getCondition() != CHANGES:
            raise _to_stream_error(error, statement) from None
    if target.to:
        raise UsageError("aggregates without a watermark cannot be written to files", WATERMARK)
    try:
        return run.write(rows, "update").foreachBatch(ChangedTotals(put)).start()
    except AnalysisException as error:
        raise _to_stream_error(error, statement) from None


class ChangedTotals:
    """Drops a global aggregate that has not changed.

    Spark returns it with every batch. Publishing it each time would never end: it is input of the next batch.
    """

    def __init__(self, put: Put) -> None:
        self._put = put
        self._last: list[Any] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:
        cached = rows.persist()
        try:
            found = cached.collect() if cached.count() == 1 else []
            if not found or found != self._last:
                self._put(cached, batch)
            self._last = found
        finally:
            cached.unpersist()


def _to_stream_error(error: AnalysisException, statement: Statement) -> UsageError:
    reason = str(to_query_error(error, statement.text)).partition(";")[0]
    hint = "without --into and --to it runs once over the log"
    return UsageError(f"this query cannot run as a stream: {reason}", hint)


# -- output ----------------------------------------------------------------------------------------------


def to_messages(rows: DataFrame, target: StreamTarget) -> DataFrame:
    """One message per row: (topic, payload, format). A column payload is used as is; other rows become JSON."""
    kinds = {field.name: type(field.dataType) for field in rows.schema.fields}
    raw = kinds.get("payload") in (StringType, BinaryType)
    own_topic = kinds.get("topic") is StringType
    if target.prefix and not (raw and own_topic):
        found = ", ".join(f"{name} {kind.typeName()}" for name, kind in kinds.items())
        hint = f"SELECT ... AS topic, ... AS payload: a string, and a string or binary; the query has {found}"
        raise UsageError(f"--into {target.into} needs the columns topic and payload", hint)
    format_ = F.col("format") if kinds.get("format") is StringType else F.lit("bytes")
    if target.prefix:
        topic = F.concat(F.lit(target.prefix), F.col("topic"))
        return rows.select(topic.alias("topic"), F.col("payload").cast("binary"), format_.alias("format"))
    topic = F.lit(target.into).alias("topic")
    if raw and kinds.keys() <= {"payload", "format"}:
        return rows.select(topic, F.col("payload").cast("binary"), format_.alias("format"))
    return rows.select(topic, _to_object(rows).cast("binary").alias("payload"), F.lit("json").alias("format"))


def _to_object(rows: DataFrame) -> Column:
    twice = next((name for name in rows.columns if rows.columns.count(name) > 1), None)
    if twice:
        raise UsageError(f"two columns are named {twice}", f"rename one of them: SELECT ... AS other_{twice}")
    fields = [_to_text(rows[field.name], field.dataType).alias(field.name) for field in rows.schema.fields]
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"})


def _to_text(column: Column, kind: DataType) -> Column:
    """Bytes become text if they are UTF-8, else base64."""
    if not isinstance(kind, BinaryType):
        return column
    text = column.cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.base64(column))


def _write_files(name: str, folder: Path, rows: DataFrame, batch: int) -> None:
    """Replaces the files of an earlier attempt of this batch."""
    made = folder.absolute() / f".{name}-{batch}"
    rows.write.mode("overwrite").parquet(str(made))
    for file in folder.glob(f"{name}-{batch:08}-*.parquet"):
        file.unlink()
    for number, file in enumerate(sorted(made.glob("*.parquet"))):
        if pq.read_metadata(file).num_rows:
            file.rename(folder / f"{name}-{batch:08}-{number:03}.parquet")
    shutil.rmtree(made)
