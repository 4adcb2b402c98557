"""SQL with rights to some topics: every view is restricted to them, whatever the query says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import SparkSession

from log.log_builder import LogBuilder
from polycast.client import Response, to_body
from polycast.model import parse_pattern, parse_patterns
from polycast.pipelines.service.sql_service import SqlService
from polycast.spark.table import restrict, to_condition
from spark.written import Sent, write_log

SECONDS = 240.0
PATTERNS = (
    ">", "a", "a.>", "a.b", "b.>", "~b", "~a.", "~polycast/x", "polycast/>", "polycast/a.>", "=polycast/a.b",
    "~a.b", "^~x>", "~", "c",
)  # fmt: skip


def topics() -> list[str]:
    chance = random.Random(7)
    made = {"".join(chance.choices(["a", "b", ".", "x", "polycast/"], k=chance.randint(1, 4))) for _ in range(300)}
    return sorted(made | {"a", "a.b", "polycast/a.b", "polycast/", "xpolycast/x", "~x1"})


def test_rights_match_the_rules_of_the_broker(spark: SparkSession) -> None:
    """For every pair: a row is visible if the view's pattern and one of the rights match its topic."""
    names = [pattern for pattern in PATTERNS if _is_pattern(pattern)]
    rows = spark.createDataFrame([(topic,) for topic in topics()], "topic string")
    found = rows.select(
        "topic", *(to_condition(parse_pattern(name)).alias(f"p{n}") for n, name in enumerate(names))
    )
    for row in found.collect():
        for number, name in enumerate(names):
            assert row[f"p{number}"] == parse_pattern(name).matches(row["topic"]), (name, row["topic"])


def _is_pattern(text: str) -> bool:
    try:
        return bool(parse_pattern(text))
    except Exception:
        return False


def test_rights_and_view_patterns_are_both_required(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(topic,) for topic in topics()], "topic string")
    for view, rights in (
        ("a.>", "~b"),
        (">", "a.>,b.>"),
        ("polycast/>", ">"),
        ("polycast/>", "polycast/a.>"),
        ("~b", "~a"),
    ):
        allowed = parse_patterns(rights)
        seen = rows.where(to_condition(parse_pattern(view)))
        expected = [
            topic
            for topic in topics()
            if parse_pattern(view).matches(topic) and any(each.matches(topic) for each in allowed)
        ]
        assert [row["topic"] for row in restrict(seen, allowed).collect()] == expected
    assert restrict(rows, []).count() == 0


# -- the SQL service -------------------------------------------------------------------------------------


@pytest.fixture(params=["hot", "sealed"])
def service(
    spark: SparkSession, builder: LogBuilder, tmp_path: Path, request: pytest.FixtureRequest
) -> SqlService:
    """One log has hot and sealed segments, the other a hot segment only."""
    if request.param == "sealed":
        return SqlService(spark, builder.folder.parent, "", SECONDS)
    sent = [Sent("mine.1", b"1"), Sent("secret.1", b"one"), Sent("secret.2", b"two"), Sent("mine.2", b"2")]
    write_log(tmp_path / "other", sent)
    return SqlService(spark, tmp_path / "other", "", SECONDS)


def run_query(service: SqlService, query: str, rights: list[str] | None, **more: Any) -> Response:
    body = {"identity": "somebody", "query": rights, "body": {"query": query, **more}}
    return service.respond(to_body(body))


def rows(service: SqlService, query: str, rights: list[str] | None) -> list[list[Any]]:
    found = run_query(service, query, rights)
    assert found.success, found.value
    return list(found.value["rows"])


def test_other_topics_are_invisible(service: SqlService) -> None:
    every = {topic for [topic] in rows(service, "SELECT DISTINCT topic FROM messages", None)}
    one = sorted(every)[0]
    for query in (
        "SELECT DISTINCT topic FROM messages",
        "SELECT DISTINCT topic FROM `>`",
        f"SELECT DISTINCT a.topic FROM `{one}` a LEFT JOIN messages b ON a.topic = b.topic",
        "WITH x AS (SELECT * FROM messages) SELECT DISTINCT topic FROM x WHERE topic IN (SELECT topic FROM `>`)",
        "SELECT DISTINCT topic FROM messages UNION SELECT topic FROM `>`",
    ):
        assert rows(service, query, [one]) == [[one]], query
    other = sorted(every)[1]
    assert rows(service, f"SELECT topic FROM `{other}`", [one]) == []
    assert rows(service, "SELECT count(*) FROM messages", []) == [[0]]


def test_views_of_another_client_are_dropped(service: SqlService, spark: SparkSession) -> None:
    every = sorted(topic for [topic] in rows(service, "SELECT DISTINCT topic FROM messages", None))
    one, other = every[0], every[-1]
    assert rows(service, f"SELECT DISTINCT topic FROM `{other}`", None) == [[other]]
    query = f"SELECT a.topic FROM `{other}` a, (WITH `{other}` AS (SELECT 1) SELECT * FROM `{other}`)"
    assert rows(service, query, [one]) == []
    assert service._spark.catalog.listTables() == []


def test_errors_do_not_reveal_hidden_rows(service: SqlService) -> None:
    """Spark infers conditions and evaluates them first: the error of a failed cast contains the value."""
    for query in (
        "SELECT topic FROM messages WHERE source = format AND cast(source AS int) = 1",
        "SELECT topic FROM messages WHERE cast(topic AS int) = 1",
        "SELECT a.topic FROM messages a JOIN messages b ON a.source = b.format AND cast(a.source AS int) = 1",
    ):
        assert rows(service, query, ["none.>"]) == [], query


def test_rows_are_filtered_before_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Without the barrier, Spark casts the value of a hidden row and shows it in the error."""
    made = spark.createDataFrame([("mine", "1", "1"), ("secret", "x", "told")], "topic string, a string, b string")
    made.coalesce(1).write.parquet(str(tmp_path / "rows"))
    read = spark.read.parquet(str(tmp_path / "rows"))
    query = "SELECT topic FROM {rows} WHERE a = b AND cast(a AS int) = 1"
    with pytest.raises(NumberFormatException, match="told"):
        spark.sql(query, rows=read.where(to_condition(parse_pattern("mine")))).collect()
    for rights in ("mine", "~mi", "mi>,other"):
        seen = spark.sql(query, rows=restrict(read, parse_patterns(rights))).collect()
        assert [row["topic"] for row in seen] == ["mine"]


def test_paths_are_not_revealed(service: SqlService) -> None:
    hidden = "SELECT _metadata.file_path FROM messages"
    for query in ("EXPLAIN SELECT * FROM messages", hidden, "DESC EXTENDED messages"):
        refused = run_query(service, query, None)
        assert not refused.success and "file:" not in refused.value, query
    assert [row[0] for row in rows(service, "DESCRIBE messages", [])][:2] == ["offset", "topic"]


def test_requests_without_envelope_are_rejected(service: SqlService) -> None:
    requested = {"query": "SELECT 1"}
    for body in (requested, {"identity": "x", "body": requested}, {"identity": "x", "query": None}):
        refused = service.respond(to_body(body))
        assert not refused.success and refused.value.startswith("BadRequest")
