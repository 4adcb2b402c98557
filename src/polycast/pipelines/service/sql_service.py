"""SQL by request, over UBRE: the route `spark/sql`.

    {"query": text, "limit"?: rows}    {"columns": [text], "rows": [[value]], "more": whether there were others}

Or a failure: in the first line what is wrong, and where that is known, below it the query with the place marked.
One query is asked at a time, others wait. The broker wraps each request and adds the requester's identity and the
patterns that it may query, null for all topics:

    {"identity": text, "query": [pattern] or null, "body": the request}

A query passes the gate of `polycast sql`, and EXPLAIN is refused: it tells where the files of the log are.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it
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
    from pyspark.sql import Column, DataFrame, SparkSession

ROUTE = "spark/sql"
AT_MOST = 1000
CELL_LETTERS = 32 * 1024
"""A text, or bytes, that is longer is cut."""
ANSWER_BYTES = 4 * 1024 * 1024
"""About. With what comes behind it an answer ends early."""
CANCEL_SECONDS = 0.2
RETRY_SECONDS = 1.0
POOL = "sql"
"""Of Spark's scheduler, beside that of the pipelines: neither waits for all that the other has to do."""
SHOWN_LETTERS = 500
"""Of a query, in the process's own log."""

log = logging.getLogger("polycast.sql")


class SqlRequest(Struct, forbid_unknown_fields=True):
    query: Annotated[str, Meta(max_length=100_000)]
    limit: Annotated[int, Meta(ge=1, le=AT_MOST)] = 100


class AttestedRequest(Struct, forbid_unknown_fields=True):
    """As the broker passes it on."""

    identity: str
    query: list[str] | None
    body: SqlRequest


class SqlService:
    """`run` is for a thread of its own, which ends with the process."""

    def __init__(self, spark: SparkSession, data: Path, at: str, seconds: float) -> None:
        """`seconds` is how long a query may take: less than the broker waits for an answer."""
        self._spark = to_session(spark)
        self._log = data / "log"
        self._at = at
        self._seconds = seconds
        self._numbers = count()
        self.offered = threading.Event()

    def run(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        while True:
            with contextlib.suppress(PolycastError, OSError), connect("ubre", self._at) as client:
                client.serve(ROUTE, self.answer)
                self.offered.set()
                for _ in client.messages():
                    pass
            threading.Event().wait(RETRY_SECONDS)

    def answer(self, body: Body) -> Response:
        try:
            attested = msgspec.json.decode(body.payload, type=AttestedRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _to_failure(f"BadRequest: {error}")
        log.info("%s queries %s", attested.identity, ascii(attested.body.query[:SHOWN_LETTERS]))
        try:
            return Response(True, Body(self._find(attested), Format.JSON))
        except PolycastError as error:
            return _to_failure(str(error))
        except Exception as error:
            return _to_failure(str(unwrap(error)))

    def _find(self, attested: AttestedRequest) -> bytes:
        asked = attested.body
        only = None if attested.query is None else [parse_pattern(text) for text in attested.query]
        statement = read_statement(asked.query)
        with self._limited():
            checked = check_query(self._spark, statement.text)
            if checked.command == "EXPLAIN":
                raise UsageError("EXPLAIN tells where files are: it is for polycast sql on the broker's machine")
            views = to_views(statement, checked)
            with self._dropping(views):
                rows = run_checked(self._spark, self._log, checked, views, only)
                found, more = take(cut(rows.limit(asked.limit + 1)), statement.text, asked.limit)
        encode = msgspec.json.Encoder(decimal_format="number").encode
        return encode({"columns": rows.columns, "rows": found, "more": more})

    @contextlib.contextmanager
    def _dropping(self, views: Iterable[str]) -> Iterator[None]:
        """The next requester may have other rights: no view of this one is left."""
        try:
            yield
        finally:
            for name in views:
                self._spark.catalog.dropTempView(name)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """What Spark does in here is cancelled when it takes too long."""
        context = self._spark.sparkContext
        group = f"sql-{next(self._numbers)}"
        context.setJobGroup(group, "sql", interruptOnCancel=True)
        done, late = threading.Event(), threading.Event()

        def watch() -> None:
            if not done.wait(self._seconds):
                late.set()
                context.cancelJobGroup(group)
            while not done.wait(CANCEL_SECONDS):  # the next job of a query may begin after the last was cancelled
                context.cancelJobGroup(group)

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        except Exception as error:
            if late.is_set():
                words = f"the query took longer than {self._seconds:g} s, and was cancelled"
                raise UsageError(words) from error
            raise
        finally:
            done.set()


def to_session(spark: SparkSession) -> SparkSession:
    """With views and settings of its own."""
    session = spark.newSession()
    register(session)
    return session


def cut(rows: DataFrame) -> DataFrame:
    """With no cell that is too long. Columns are numbered: names may repeat."""
    numbered = rows.toDF(*map(str, range(len(rows.columns))))
    return numbered.select([_to_column(field) for field in numbered.schema.fields])


def _to_column(field: StructField) -> Column:
    if isinstance(field.dataType, BinaryType | StringType):
        return F.substring(field.name, 1, CELL_LETTERS).alias(field.name)
    return F.col(field.name)


def take(rows: DataFrame, query: str, limit: int) -> tuple[list[Any], bool]:
    """So many of the rows, or fewer if they are large, and whether there are others."""
    found: list[Any] = []
    size = 0
    for batch in to_batches(rows, query):
        for row in to_rows(batch, to_plain):
            size += len(msgspec.json.encode(row))
            if len(found) == limit or (found and size > ANSWER_BYTES):
                return found, True
            found.append(row)
    return found, False


def _to_failure(words: str) -> Response:
    return Response(False, Body(words.encode(errors="replace"), Format.TEXT))
