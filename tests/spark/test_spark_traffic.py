"""`traffic`: what the workers count, what Spark makes of it, and what is kept."""

from __future__ import annotations

import json
import random
import statistics
import threading
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kit.broker import Broker
from log.shelf import BEGAN, SECOND, Shelf
from polycast.client import connect
from polycast.errors import RemoteError
from polycast.log.files.format import SCHEMA
from polycast.model import Message
from polycast.pipelines.runtime.runner import RunReport, prepare_run, run_in_session
from polycast.pipelines.traffic.counts import count_batch, to_bucket, to_delays
from polycast.pipelines.traffic.windows import upsert

MINUTE = 60
KEYS = ["window", "topic", "dialect"]
Row = dict[str, Any]
Key = tuple[int, str, str]


class Timed(Shelf):
    """Messages whose times, sizes and senders somebody chose."""

    def say(self, rows: list[Row]) -> None:
        self.make_from = rows
        self.segment(len(rows))

    def make(self, count: int, payload: bytes | None = None, topics: Any = ()) -> pa.RecordBatch:
        rows = [
            {"offset": self.next + n, "sequence": n, "dialect": "hermod", "format": "bytes", "source": "s"} | row
            for n, row in enumerate(self.make_from)
        ]
        self.rows += rows
        return pa.RecordBatch.from_pylist(rows, SCHEMA)


def said(count: int, seed: int = 1) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "topic": chance.choice("ab"),
            "dialect": chance.choice(["hermod", "ubre"]),
            "source": f"source {chance.randrange(5)}",
            "time": BEGAN + n * SECOND,
            "payload": bytes(chance.choice([5, 10, 20, 100])),
        }
        for n in range(count)
    ]


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
    """As Spark does: a half goes up."""
    return int(number + 0.5)


def to_dict(table: pa.Table) -> dict[Key, Row]:
    names = ("messages", "bytes", "size_p50", "size_p90", "size_p99", "size_max", "sources")
    found = {
        (int(row["window"].timestamp()), row["topic"], row["dialect"]): {name: row[name] for name in names}
        for row in table.to_pylist()
    }
    assert len(found) == table.num_rows
    return found


# -- what the workers count ------------------------------------------------------------------------------


def test_sizes_are_exact_where_small_and_near_where_large() -> None:
    sizes = [*range(1000), 4095, 4096, 4097, 2**20 - 1, 2**20, 2**31 - 1]
    found = to_bucket(pa.array(sizes, pa.int64())).to_pylist()
    assert found[:128] == sizes[:128]
    assert all(abs(near - size) <= size / 128 for near, size in zip(found, sizes, strict=True))
    assert found == sorted(found)
    assert len(set(found[128:256])) == 64
    assert to_bucket(pa.array([0, 127])).to_pylist() == [0, 127]


def test_delays_are_never_before_the_message() -> None:
    times = pa.array([1_000_000, 1_500_000, 9_000_000])
    assert to_delays(times, 2.0).to_pylist() == [1000.0, 500.0, 0.0]


def test_a_batch_is_counted_by_window_topic_dialect_source_and_size(tmp_path: Path) -> None:
    shelf = Timed(tmp_path)
    shelf.say(said(500))
    batch = pa.RecordBatch.from_pylist(shelf.rows, SCHEMA)
    now = BEGAN / SECOND + 1000
    wanted: dict[Any, list[Row]] = defaultdict(list)
    for row in shelf.rows:
        window = row["time"] // SECOND // MINUTE
        wanted[window, row["topic"], row["dialect"], row["source"], len(row["payload"])].append(row)
    found = count_batch(batch, MINUTE, now).to_pylist()
    assert len(found) == len(wanted) < 500
    for row in found:
        micros = round(row["time"].timestamp() * SECOND)
        group = wanted[micros // SECOND // MINUTE, row["topic"], row["dialect"], row["source"], row["size"]]
        delays = [now * 1000 - each["time"] / 1000 for each in group]
        assert micros == max(each["time"] for each in group)
        assert (row["messages"], row["bytes"]) == (len(group), row["size"] * len(group))
        assert row["delay_sum_ms"] == pytest.approx(sum(delays))
        assert row["delay_max_ms"] == pytest.approx(max(delays))


# -- what is kept ----------------------------------------------------------------------------------------


def not_null(found: pa.Table) -> pa.Table:
    """As Spark has it where it can tell."""
    return found.cast(pa.schema([field.with_nullable(False) for field in found.schema]))


def table(*rows: tuple[int, str, int]) -> pa.Table:
    fields = [("window", pa.timestamp("us", tz="UTC")), ("topic", pa.string()), ("messages", pa.int64())]
    times = [datetime.fromtimestamp(window, UTC) for window, _, _ in rows]
    columns = [times, [topic for _, topic, _ in rows], [count for _, _, count in rows]]
    return pa.table(columns, schema=pa.schema(fields))


def test_a_key_is_kept_once_with_its_newest_values(tmp_path: Path) -> None:
    first = BEGAN // SECOND // 3600 * 3600
    upsert(tmp_path, table((first, "a", 1), (first, "b", 1), (first + 3600, "a", 1)), ["window", "topic"])
    newer = not_null(table((first, "b", 5), (first + 60, "a", 7)))
    for _ in range(2):
        upsert(tmp_path, newer, ["window", "topic"])
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert names == ["date=2023-11-14/22.parquet", "date=2023-11-14/23.parquet"]
    found = duckdb.execute(
        f"select epoch(\"window\")::bigint, topic, messages from '{tmp_path}/*/*.parquet' order by all"
    )
    assert found.fetchall() == [(first, "a", 1), (first, "b", 5), (first + 60, "a", 7), (first + 3600, "a", 1)]


# -- with Spark ------------------------------------------------------------------------------------------


def run(spark: SparkSession, data: Path, at: str, *settings: str) -> RunReport:
    order = prepare_run("traffic", data, at, settings, once=True)
    return run_in_session(spark, order, lambda progress: None, threading.Event())


def kept(data: Path) -> pa.Table:
    found = duckdb.sql(f"select * from '{data}/traffic/*/*.parquet'")
    assert found
    return found.to_arrow_table()


def test_from_log_to_windows_and_late_messages(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    shelf = Timed(tmp_path / "log")
    shelf.say(said(500))
    nowhere = "tcp://127.0.0.1:1"
    run(spark, tmp_path, nowhere, "publish=false")
    assert to_dict(kept(tmp_path)) == expected(shelf.rows)

    # the last window goes on, and one message is late, but not too late; then, when windows are closed, one is
    at = BEGAN + 500 * SECOND
    shelf.say([{"topic": "a", "time": at + n * SECOND, "payload": b"xyz"} for n in (0, 1, 2, -70)])
    for later in (400, 401):  # Spark leaves out what is late with the batch after the one that closes a window
        shelf.say([{"topic": "a", "time": at + later * SECOND, "payload": b"new"}])
    counted = expected(shelf.rows)
    shelf.say([{"topic": "a", "time": at - 70 * SECOND, "payload": b"late"}])
    report = run(spark, tmp_path, nowhere, "publish=false", "batch_bytes=1")
    assert to_dict(kept(tmp_path)) == counted
    assert (report.offset, report.lag) == (507, 0)


def test_what_is_published_and_a_batch_that_comes_again(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(listen=("hermod.pub", "hermod.sub"), data=tmp_path) as broker:
        at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
        with connect("hermod", at, publishing=True) as client:
            client.publish(Message(f"room/{n % 2}", b"x" * n) for n in range(10))
        run(spark, tmp_path, at, "window_seconds=86400")
        told = published(spark, tmp_path)
        assert sorted(told) == ["polycast/traffic/room/0", "polycast/traffic/room/1"]
        [odd] = told["polycast/traffic/room/1"]
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
        assert published(spark, tmp_path) == told
        with connect("hermod", at, publishing=True) as client:
            [known] = client.request("polycast/pipelines").value["pipelines"]
        assert (known["query"], known["state"], known["offset"]) == ("traffic", "stopped", 12)


def published(spark: SparkSession, data: Path) -> dict[str, list[Row]]:
    reader = spark.read.format("polycast").option("path", str(data)).option("subscribe", "polycast/traffic/>")
    found: dict[str, list[Row]] = defaultdict(list)
    for row in reader.load().collect():
        found[row.topic].append(json.loads(row.payload))
    return found


def test_without_a_broker_it_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    Timed(tmp_path / "log").say(said(3))
    with pytest.raises(RemoteError, match=r"traffic publishes its results, and cannot reach tcp://127\.0\.0\.1:1"):
        prepare_run("traffic", tmp_path, "tcp://127.0.0.1:1")
    assert prepare_run("traffic", tmp_path, "tcp://127.0.0.1:1", ["publish=false"]).settings.window_seconds == 60
