"""SQL over UBRE requests: the route `spark/sql`.

    request     {"query": text, "limit"?: rows}
    response    {"columns": [text], "rows": [[value]], "more": whether rows were left out}

A failure has the error on its first line and, if the location is known, the query with that part marked. Queries
run one at a time. The broker wraps each request and adds the identity of the client and the patterns that it may
query, null for all topics:

    {"identity": text, "query": [pattern] or null, "body": the request}

Queries pass the same checks as in `polycast sql`. EXPLAIN is rejected: it reveals the paths of the log's files.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from pyspark.sql import functions as F  # noqa: N812 -- the usual alias
from pyspark.sql.types import BinaryType, StringType, StructField

from polycast.client import Response, connect
from polycast.errors import PolycastError, UsageError
from polycast.model import Body, Format, parse_pattern
from polycast.pipelines.runtime.json_values import to_plain, to_rows
from polycast.pipelines.sql.batch_query import run_checked, to_batches
from polycast.pipelines.sql.gate import check_query
from polycast.pipelines.sql.statement import read_statement, to_views
from polycast.spark import register
from polycast.spark.error_text import unwrap

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

ROUTE = "spark/sql"
MAX_ROWS = 1000
CELL_CHARACTERS = 32 * 1024
"""Longer strings and bytes are cut."""
RESPONSE_BYTES = 4 * 1024 * 1024
"""Approximate limit of a response; further rows are left out."""
RESPONSE_BYTES_AT_MOST = 2 * RESPONSE_BYTES
"""A larger response, of one large row or of many column names, is refused. The broker accepts none larger than
`limits.payload_bytes`: it would close the connection, and so fail all open requests."""
ERROR_CHARACTERS = 64 * 1024
"""Longer error messages are cut: Spark quotes values of any size."""
CANCEL_SECONDS = 0.2
STOP_SECONDS = 30.0
"""How long a cancelled query may continue."""
RETRY_SECONDS = 1.0
POOL = "sql"
"""Scheduler pool, separate from the pipelines' pool, so that neither starves the other."""
JOB_GROUP = "spark.jobGroup.id"
"""Local property of a thread: its next jobs belong to this group. None removes it."""
LOGGED_CHARACTERS = 500
"""Characters of a query in a log line."""

log = logging.getLogger("polycast.sql")
numbers = count()
"""Numbers of all queries of this process: cancelling one job group cancels no other query."""


class SqlRequest(Struct, forbid_unknown_fields=True):
    query: Annotated[str, Meta(max_length=100_000)]
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 100


class AttestedRequest(Struct, forbid_unknown_fields=True):
    """A request as the broker forwards it."""

    identity: str
    query: list[str] | None
    body: SqlRequest


class SqlService:
    """`run` never returns; call it in its own daemon thread."""

    def __init__(
        self, spark: SparkSession, data: Path, at: str, seconds: float, stop_seconds: float = STOP_SECONDS
    ) -> None:
        """`seconds` limits a query; it is less than the broker's timeout for a response."""
        self._spark = to_session(spark)
        self._log = data / "log"
        self._at = at
        self._seconds = seconds
        self._stop_seconds = stop_seconds
        self.registered = threading.Event()
        self.stuck = threading.Event()
        """A cancelled query continues: only the end of the Java process stops it."""

    def run(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        while True:
            with contextlib.suppress(PolycastError, OSError), connect("ubre", self._at, reconnect=False) as client:
                client.serve(ROUTE, self.respond)
                self.registered.set()
                for _ in client.messages():
                    pass
            threading.Event().wait(RETRY_SECONDS)

    def respond(self, body: Body) -> Response:
        try:
            attested = msgspec.json.decode(body.payload, type=AttestedRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _to_failure(f"BadRequest: {error}")
        log.info("%s queries %s", attested.identity, ascii(attested.body.query[:LOGGED_CHARACTERS]))
        try:
            return Response(True, Body(self._query(attested), Format.JSON))
        except PolycastError as error:
            return _to_failure(str(error))
        except Exception as error:
            return _to_failure(str(unwrap(error)))

    def _query(self, attested: AttestedRequest) -> bytes:
        request = attested.body
        only = None if attested.query is None else [parse_pattern(text) for text in attested.query]
        statement = read_statement(request.query)
        with self._limited():
            checked = check_query(self._spark, statement.text)
            if checked.command == "EXPLAIN":
                raise UsageError("EXPLAIN reveals file paths: use polycast sql on the broker's machine")
            views = to_views(statement, checked)
            with self._dropped_afterwards(views):
                rows = run_checked(self._spark, self._log, checked, views, only)
                found, more = take_rows(
                    truncate_cells(rows.limit(request.limit + 1)), statement.text, request.limit
                )
        encode = msgspec.json.Encoder(decimal_format="number").encode
        response = encode({"columns": rows.columns, "rows": found, "more": more})
        if len(response) > RESPONSE_BYTES_AT_MOST:
            message = f"the response has {len(response):,} bytes, the limit is {RESPONSE_BYTES_AT_MOST:,}"
            raise UsageError(message, "select fewer or shorter columns")
        return response

    @contextlib.contextmanager
    def _dropped_afterwards(self, views: Iterable[str]) -> Iterator[None]:
        """Drops the views: the next client may have other rights."""
        try:
            yield
        finally:
            for name in views:
                self._spark.catalog.dropTempView(name)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Cancels Spark's jobs after the time limit, and at the end of the block."""
        group = f"sql-{next(numbers)}"
        self._spark.sparkContext.setJobGroup(group, "sql", interruptOnCancel=True)
        done, late = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, args=(group, done, late), daemon=True).start()
        try:
            yield
        except Exception as error:
            if late.is_set():
                message = f"the query took longer than {self._seconds:g} s and was cancelled"
                raise UsageError(message) from error
            raise
        finally:
            done.set()
            self._spark.sparkContext.setLocalProperty(JOB_GROUP, None)  # type: ignore[arg-type]

    def _watch(self, group: str, done: threading.Event, late: threading.Event) -> None:
        """Cancels the query until none of its tasks is left; sets `stuck` if it does not stop.

        Spark interrupts a task and does not kill it: a task that computes a single value without end, as with a
        backtracking regular expression, keeps its core. Constants are computed before there is a task, and that
        cannot be cancelled.
        """
        if not done.wait(self._seconds):
            late.set()
        deadline = time.monotonic() + self._stop_seconds
        while True:
            is_done = done.is_set()  # read first: until then a query may start another job after one was cancelled
            if self._cancel(group) and is_done:
                return
            if time.monotonic() > deadline:
                self.stuck.set()
                return
            time.sleep(CANCEL_SECONDS)

    def _cancel(self, group: str) -> bool:
        """Whether the query has no task left."""
        context = self._spark.sparkContext
        try:
            context.cancelJobGroup(group)
            return not has_tasks(context, group)
        except Exception:  # Spark has stopped, or is stopping
            return False


def has_tasks(context: SparkContext, group: str) -> bool:
    """Whether a task of the job group runs, also of a job that was cancelled."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return any(stage.numActiveTasks for stage in stages if stage)


def to_session(spark: SparkSession) -> SparkSession:
    """A session with separate views and settings."""
    session = spark.newSession()
    register(session)
    return session


def truncate_cells(rows: DataFrame) -> DataFrame:
    """Columns are renamed to numbers, because their names may repeat."""
    numbered = rows.toDF(*map(str, range(len(rows.columns))))
    return numbered.select([_to_column(field) for field in numbered.schema.fields])


def _to_column(field: StructField) -> Column:
    if isinstance(field.dataType, BinaryType | StringType):
        return F.substring(field.name, 1, CELL_CHARACTERS).alias(field.name)
    return F.col(field.name)


def take_rows(rows: DataFrame, query: str, limit: int) -> tuple[list[Any], bool]:
    """At most `limit` rows and about RESPONSE_BYTES, and whether there are more."""
    found: list[Any] = []
    size = 0
    for batch in to_batches(rows, query):
        for row in to_rows(batch, to_plain):
            size += len(msgspec.json.encode(row))
            if len(found) == limit or (found and size > RESPONSE_BYTES):
                return found, True
            found.append(row)
    return found, False


def _to_failure(message: str) -> Response:
    message = message if len(message) <= ERROR_CHARACTERS else f"{message[:ERROR_CHARACTERS]}..."
    return Response(False, Body(message.encode(errors="replace"), Format.TEXT))
