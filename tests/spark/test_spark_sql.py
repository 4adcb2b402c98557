"""SQL over topics: results, errors and streaming queries."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from kit.broker import Broker
from kit.program import Finished, polycast_here
from polycast.client import connect
from polycast.errors import UsageError
from polycast.model import Message
from polycast.pipelines.runtime.runner import RunReport, prepare_pipeline, run_in_session
from polycast.pipelines.sql.statement import read_statement
from polycast.pipelines.sql.stream_query import ChangedTotals, StreamTarget, check_target, to_pipeline
from spark.here import run_here

ORDERS = [{"id": number, "price": number * 1.5} for number in range(4)]
BYTES = b"\xff\x00"
PRICES = "SELECT get_json_object(cast(payload AS string), '$.price') AS price FROM `orders.>` ORDER BY 1"
"""The example of `polycast sql --help`."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sql") / "data"


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Broker]:
    with Broker(listen=("hermod.pub",), data=data) as running:
        publish(running, *(Message("orders.new", json.dumps(config).encode()) for config in ORDERS))
        publish(running, Message("raw", BYTES), Message("orders.paid", b'{"id": 9, "price": 0.5}'))
        yield running


def at(broker: Broker) -> str:
    return f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"


def publish(broker: Broker, *messages: Message) -> None:
    with connect("hermod", at(broker), publishing=True) as client:
        client.publish(messages)


@pytest.fixture
def run_query(spark: SparkSession, broker: Broker, data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    run_here(spark, monkeypatch)

    def sql(query: str, *arguments: str) -> Finished:
        return polycast_here("sql", query, "--data", str(data), *arguments)

    return sql


def rows_of(finished: Finished) -> list[dict[str, Any]]:
    assert (finished.code, finished.err) == (0, "")
    return [json.loads(line) for line in finished.out.splitlines()]


# -- results ---------------------------------------------------------------------------------------------


def test_select(run_query: Any) -> None:
    counted = run_query(
        "SELECT topic, count(*) AS n FROM messages WHERE offset < 6 GROUP BY topic ORDER BY n DESC, topic"
    )
    assert counted.out.decode().split() == ["topic", "n", "orders.new", "4", "orders.paid", "1", "raw", "1"]
    prices = rows_of(run_query(PRICES, "--json"))
    assert [row["price"] for row in prices] == ["0.0", "0.5", "1.5", "3.0", "4.5"]
    named = run_query(
        "SELECT payload, topic, topic FROM mine WHERE topic = 'raw'", "--csv", "--view", "mine=raw,orders.>"
    )
    assert named.out == b"payload,topic,topic\n/wA=,raw,raw\n"


def test_all_types_of_values(run_query: Any) -> None:
    query = """
        SELECT payload, time IS NULL AS timeless, parse_json('{"a": [1]}') AS variant, INTERVAL 2 MONTHS AS months,
               from_json('{"a": {"b": 1}}', 'a map<string, int>') AS parsed, array(1.5) AS listed
        FROM `raw`
    """
    [row] = rows_of(run_query(query, "--json"))
    assert row == {
        "payload": {"$base64": "/wA="}, "timeless": False, "variant": '{"a":[1]}', "months": "INTERVAL '2' MONTH",
        "parsed": {"a": {"b": 1}}, "listed": [1.5],
    }  # fmt: skip
    assert [row["col_name"] for row in rows_of(run_query("DESCRIBE `raw`", "--json"))][:2] == ["offset", "topic"]
    [explained] = rows_of(run_query("EXPLAIN SELECT topic FROM messages", "--json"))
    assert "== Physical Plan ==" in explained["plan"]


@pytest.mark.parametrize(
    ("query", "words", "marked"),
    [
        ("SELECT * FORM messages", "Syntax error at or near 'messages'", "              ^"),
        ("SELECT 1,\n offst FROM messages", "Did you mean one of the following? [`offset`", " ^^^^^"),
        ("SELECT 1 FROM nowhere", "unknown view nowhere", "              ^^^^^^^"),
        ("SELECT 1;\nSELECT 2", "Syntax error at or near 'SELECT'", "^"),
        ("SELECT reflect('a')", "the function reflect is not allowed: it calls Java", "       ^^^^^^^^^^^^"),
        ("SELECT cast(topic AS int) FROM `raw`", "cannot be cast to", "       ^^^^^^^^^^^^^^^^^^"),
    ],
)
def test_errors_are_marked_in_the_query(run_query: Any, query: str, words: str, marked: str) -> None:
    failed = run_query(query)
    assert (failed.code, failed.out) == (2, b"")
    assert words in failed.err.splitlines()[0]
    assert f"  {marked}" in failed.err.splitlines()
    assert "SQLSTATE" not in failed.err and "Project" not in failed.err


@pytest.mark.parametrize(
    ("query", "message", "cure"),
    [
        ("/* nothing */", "Syntax error", ""),
        ("SELCT 1", "Syntax error at or near 'SELCT'", ""),
        ("DROP TABLE messages", "DropTable is not allowed: a query cannot change data", "--into TOPIC"),
        (
            "FROM messages INSERT OVERWRITE t SELECT *",
            "InsertIntoStatement is not allowed: a query cannot change data",
            "--to PATH",
        ),
        ("SELECT * FROM ``", "a pattern cannot be empty", "'>'"),
        ("SELECT * FROM `a.>` JOIN `A.>`", "`a.>` and `A.>` differ only in case", "--view"),
        ("SELECT 1 FROM orders", "unknown view orders", "in back-ticks: `orders`"),
    ],
)
def test_invalid_statements(run_query: Any, query: str, message: str, cure: str) -> None:
    failed = run_query(query)
    error, _, hint = failed.err.partition("\nhint: ")
    assert (failed.code, failed.out) == (2, b"")
    assert message in error
    assert cure in hint


# -- streaming queries -----------------------------------------------------------------------------------


Follow = Callable[..., RunReport]


@pytest.fixture
def follow(spark: SparkSession, broker: Broker, data: Path) -> Follow:
    """Runs a query with `--once`."""

    def run(query: str, **target: Any) -> RunReport:
        statement, where = read_statement(query), StreamTarget(**target)
        check_target(where)
        config = prepare_pipeline(to_pipeline(statement, where), data, at(broker), (), "", True)
        return run_in_session(spark, config, lambda progress: None, threading.Event())

    return run


def published(run_query: Any, topic: str) -> list[tuple[str, Any]]:
    query = f"SELECT topic, payload, format FROM `{topic}` ORDER BY offset"
    return [(row["topic"], row["payload"]) for row in rows_of(run_query(query, "--json"))]


def test_aggregates_are_published_when_they_change(follow: Follow, broker: Broker, run_query: Any) -> None:
    query = "SELECT topic, count(*) AS n FROM messages WHERE topic LIKE 'orders%' GROUP BY topic"
    follow(query, into="totals")
    first = [json.loads(payload) for _, payload in published(run_query, "totals")]
    assert sorted(first, key=str) == [{"topic": "orders.new", "n": 4}, {"topic": "orders.paid", "n": 1}]
    publish(broker, Message("orders.paid", b"{}"))
    follow(query, into="totals")
    after = [json.loads(payload) for _, payload in published(run_query, "totals")]
    assert after[2:] == [{"topic": "orders.paid", "n": 2}]


def test_a_global_aggregate_is_published_when_it_changes(spark: SparkSession) -> None:
    reported: list[int] = []
    changes = ChangedTotals(lambda rows, batch: reported.append(batch))
    for batch, numbers in enumerate([[1], [1], [2], [1, 2], [1, 2], [2]]):
        changes(spark.createDataFrame([(number,) for number in numbers], "n int"), batch)
    assert reported == [0, 2, 3, 4, 5]


def test_rows_choose_their_topic(follow: Follow, broker: Broker, run_query: Any) -> None:
    follow("SELECT topic, payload FROM messages WHERE topic = 'raw'", into="copy.>")
    assert published(run_query, "copy.>") == [("copy.raw", {"$base64": "/wA="})]
    follow("SELECT payload FROM `raw`", into="single")
    assert published(run_query, "single") == [("single", {"$base64": "/wA="})]


def test_rows_are_written_as_parquet(follow: Follow, broker: Broker, tmp_path: Path) -> None:
    query = "SELECT offset, payload FROM `raw`"
    for _ in range(2):
        follow(query, to=tmp_path)
        assert duckdb.execute(f"SELECT count(*), min(payload) FROM '{tmp_path}/*.parquet'").fetchall() == [
            (1, BYTES)
        ]
    publish(broker, Message("raw", BYTES))
    follow(query, to=tmp_path)
    assert duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/*.parquet'").fetchall() == [(2,)]


@pytest.mark.parametrize(
    ("query", "target", "words"),
    [
        ("SELECT * FROM messages ORDER BY time", {"into": "x"}, "cannot run as a stream: Sorting"),
        (
            "SELECT count(*) FROM messages",
            {"to": "x"},
            "aggregates without a watermark cannot be written to files",
        ),
        ("SELECT 1", {"into": "x"}, "the query reads no messages"),
        ("SELECT topic FROM messages", {"into": "x.>"}, "needs the columns topic and payload"),
        ("SELECT topic, topic FROM messages", {"into": "x"}, "two columns are named topic"),
        ("SELECT nothing FROM messages", {"into": "x"}, "Did you mean"),
        ("DESCRIBE messages", {"into": "x"}, "--into and --to take the rows of a SELECT"),
        ("SELECT payload FROM `x`", {"into": "x"}, "the query would read its own output: `x`"),
        ("SELECT TRANSFORM(topic) USING 'cat' FROM messages", {"into": "x"}, "ScriptTransformation is not"),
    ],
)
def test_queries_that_cannot_run_as_a_stream(
    follow: Follow, tmp_path: Path, query: str, target: dict[str, Any], words: str
) -> None:
    if "to" in target:
        target = {"to": tmp_path}
    with pytest.raises(UsageError) as refused:
        follow(query, **target)
    assert words in str(refused.value)
