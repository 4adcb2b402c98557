"""The pipeline `traffic`, from the log to windows and messages."""

from __future__ import annotations

import json
import statistics
import threading
from collections import defaultdict
from pathlib import Path

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from kit.broker import Broker
from log.log_builder import BEGAN, SECOND
from pipelines.timed import Row, Timed, sent
from polycast.client import connect
from polycast.model import Message
from polycast.pipelines.runtime.runner import RunReport, prepare_run, run_in_session

MINUTE = 60
Key = tuple[int, str, str]


def expected(rows: list[Row]) -> dict[Key, Row]:
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["time"] // SECOND // MINUTE * MINUTE, row["topic"], row["dialect"]].append(row)
    return {key: _describe(group) for key, group in groups.items()}


def _describe(group: list[Row]) -> Row:
    sizes = [len(row["payload"]) for row in group]
    cuts = statistics.quantiles(sizes, n=100, method="inclusive") if len(sizes) > 1 else sizes * 99
    return {
        "messages": len(group),
        "bytes": sum(sizes),
        "size_p50": round_up(cuts[49]),
        "size_p90": round_up(cuts[89]),
        "size_p99": round_up(cuts[98]),
        "size_max": max(sizes),
        "sources": len({row["source"] for row in group}),
    }


def round_up(number: float) -> int:
    """Rounds half up, as Spark does."""
    return int(number + 0.5)


def to_dict(table: pa.Table) -> dict[Key, Row]:
    names = ("messages", "bytes", "size_p50", "size_p90", "size_p99", "size_max", "sources")
    found = {
        (int(row["window"].timestamp()), row["topic"], row["dialect"]): {name: row[name] for name in names}
        for row in table.to_pylist()
    }
    assert len(found) == table.num_rows
    return found


def run(spark: SparkSession, data: Path, at: str, *settings: str) -> RunReport:
    config = prepare_run("traffic", data, at, settings, once=True)
    return run_in_session(spark, config, lambda progress: None, threading.Event())


def written(data: Path) -> pa.Table:
    found = duckdb.sql(f"select * from '{data}/traffic/*/*.parquet'")
    assert found
    return found.to_arrow_table()


def test_windows_and_late_messages(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    builder = Timed(tmp_path / "log")
    builder.add_rows(sent(500))
    nowhere = "tcp://127.0.0.1:1"
    run(spark, tmp_path, nowhere, "publish=false")
    assert to_dict(written(tmp_path)) == expected(builder.rows)

    # the last window continues, one message is late but within the limit; after the windows close, one is too late
    at = BEGAN + 500 * SECOND
    builder.add_rows([{"topic": "a", "time": at + n * SECOND, "payload": b"xyz"} for n in (0, 1, 2, -70)])
    for later in (400, 401):  # Spark drops late rows from the batch after the one that closes a window
        builder.add_rows([{"topic": "a", "time": at + later * SECOND, "payload": b"new"}])
    counted = expected(builder.rows)
    builder.add_rows([{"topic": "a", "time": at - 70 * SECOND, "payload": b"late"}])
    report = run(spark, tmp_path, nowhere, "publish=false", "batch_bytes=1")
    assert to_dict(written(tmp_path)) == counted
    assert (report.offset, report.lag) == (507, 0)


def test_published_windows_and_a_repeated_batch(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(listen=("hermod.pub", "hermod.sub"), data=tmp_path) as broker:
        at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
        with connect("hermod", at, publishing=True) as client:
            client.publish(Message(f"room/{n % 2}", b"x" * n) for n in range(10))
        run(spark, tmp_path, at, "window_seconds=86400")
        reported = published(spark, tmp_path)
        assert sorted(reported) == ["polycast/traffic/room/0", "polycast/traffic/room/1"]
        [odd] = reported["polycast/traffic/room/1"]
        assert odd | {"window": "", "delay_mean_ms": 0, "delay_max_ms": 0} == {
            "window": "", "seconds": 86400, "topic": "room/1", "dialect": "hermod", "messages": 5,
            "messages_per_second": 0.0, "bytes": 25, "size_p50": 5, "size_p90": 8, "size_p99": 9, "size_max": 9,
            "sources": 1, "delay_mean_ms": 0, "delay_max_ms": 0,
        }  # fmt: skip
        assert odd["window"].endswith("T00:00:00.000Z")
        assert 0 < odd["delay_mean_ms"] <= odd["delay_max_ms"]

        commits = tmp_path / "checkpoints" / "traffic" / "commits"
        commits.joinpath(max(path.name for path in commits.glob("[0-9]*"))).unlink()
        run(spark, tmp_path, at, "window_seconds=86400")
        assert published(spark, tmp_path) == reported
        with connect("hermod", at, publishing=True) as client:
            [known] = client.request("polycast/pipelines").value["pipelines"]
        assert (known["query"], known["state"], known["offset"]) == ("traffic", "stopped", 12)


def published(spark: SparkSession, data: Path) -> dict[str, list[Row]]:
    reader = spark.read.format("polycast").option("path", str(data)).option("subscribe", "polycast/traffic/>")
    found: dict[str, list[Row]] = defaultdict(list)
    for row in reader.load().collect():
        found[row.topic].append(json.loads(row.payload))
    return found
