"""Limits of SQL by request, with the shared session."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from log.log_builder import LogBuilder
from polycast.client import to_body
from polycast.model import Body
from polycast.pipelines.service.sql_service import JOB_GROUP, SqlService

SPARK_SECONDS = 240.0


def test_a_query_without_tasks_that_does_not_end_is_stuck(spark: SparkSession, tmp_path: Path) -> None:
    """A constant that is computed while Spark plans cannot be cancelled."""
    service = SqlService(spark, tmp_path, "", seconds=0.1, stop_seconds=0.1)
    late = threading.Event()
    service._watch("no-such-group", threading.Event(), late)
    assert late.is_set() and service.stuck.is_set()


def test_a_query_that_ends_in_time_is_not_stuck(spark: SparkSession, tmp_path: Path) -> None:
    service = SqlService(spark, tmp_path, "", SPARK_SECONDS)
    done, late = threading.Event(), threading.Event()
    done.set()
    service._watch("no-such-group", done, late)
    assert not late.is_set() and not service.stuck.is_set()


def attested(query: str) -> Body:
    """A request as the broker forwards it, from a client that may query all topics."""
    return to_body({"identity": "loopback", "query": None, "body": {"query": query}})


def test_a_slow_query_is_cancelled(spark: SparkSession, builder: LogBuilder) -> None:
    service = SqlService(spark, builder.folder.parent, "", seconds=0.5)
    endless = "SELECT count(*) FROM range(1000000000000) WHERE sqrt(id) < 0"
    failed = service.respond(attested(endless))
    assert (failed.success, failed.value) == (False, "the query took longer than 0.5 s and was cancelled")
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    patient = SqlService(spark, builder.folder.parent, "", SPARK_SECONDS)
    response = patient.respond(attested("SELECT count(*) AS n FROM messages"))
    assert response.value == {"columns": ["n"], "rows": [[300]], "more": False}


def test_jobs_after_a_query_are_not_cancelled_with_it(spark: SparkSession, builder: LogBuilder) -> None:
    """The job group belongs to the thread: its next jobs would be cancelled while the query's tasks end."""
    service = SqlService(spark, builder.folder.parent, "", SPARK_SECONDS)
    for query in ("SELECT count(*) FROM messages", "SELECT no_such_column FROM messages"):
        service.respond(attested(query))
        assert spark.sparkContext.getLocalProperty(JOB_GROUP) is None, query


def test_a_large_result_is_truncated(
    spark: SparkSession, builder: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polycast.pipelines.service.sql_service.RESPONSE_BYTES", 1000)
    service = SqlService(spark, builder.folder.parent, "", SPARK_SECONDS)
    query = "SELECT repeat('x', 300) AS x FROM messages"
    response = service.respond(attested(query)).value
    assert (len(response["rows"]), response["more"]) == (3, True)


def test_a_response_is_limited(spark: SparkSession, builder: LogBuilder) -> None:
    """The broker would close the connection for a larger one, and so fail all open requests."""
    service = SqlService(spark, builder.folder.parent, "", SPARK_SECONDS)
    names = ", ".join(["t.*"] * 200)
    for query, text in (
        (
            "SELECT transform(array_repeat(0, 1000), x -> lpad('', 32000, 'a')) AS x",
            "bytes, the limit is 8,388,608",
        ),
        (f"SELECT {names} FROM (SELECT 1 AS `{'n' * 50_000}`) t", "bytes, the limit is 8,388,608"),
        (f"SELECT cast(concat({', '.join(['x'] * 9)}) AS int) FROM (SELECT repeat('x', 1000000) x)", "xxx..."),
    ):
        failed = service.respond(attested(query))
        assert not failed.success and text in failed.value and len(failed.value) < 100_000, failed.value[:200]
