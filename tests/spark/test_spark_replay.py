"""The pipeline `replay` publishes messages again: exactly once, in order, under a prefix, at a given speed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kit.broker import Broker
from kit.wire import wait_for
from polycast.log.read.query import RowFilter
from polycast.model import Everything, Prefix
from polycast.pipelines import find
from polycast.pipelines.index.search import COLUMNS
from polycast.pipelines.runtime.definition import PipelineRun
from polycast.pipelines.runtime.worker_tasks import log_tasks
from spark.written import Sent, write_log

REPLAY = find("replay")
Row = tuple[str, bytes]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """With 300 messages, one per second, on three topics and one reserved topic."""
    sent = [Sent(f"t.{n % 3}", b"%d" % n, n, "json" if n % 2 else "bytes") for n in range(300)]
    sent[10] = Sent("polycast/traffic/t", b"10", 10)
    write_log(tmp_path / "data", sent)
    with Broker(listen=("hermod.pub",), data=tmp_path / "data") as running:
        yield running


def begin(spark: SparkSession, broker: Broker, data: Path, **settings: Any) -> Any:
    at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
    return REPLAY.start(PipelineRun(spark, REPLAY, data, at, REPLAY.settings(**settings), once=True))


def rows(data: Path, prefix: str) -> list[Row]:
    wanted = RowFilter((Prefix(prefix),))
    batches = [b for part in log_tasks(data / "log", wanted, ["topic", "payload"]) for b in part.read()]
    return [
        (topic.removeprefix(prefix), payload)
        for batch in batches
        for topic, payload in zip(batch["topic"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    ]


def original(first: int = 0, last: int = 300) -> list[Row]:
    return [(f"t.{n % 3}", b"%d" % n) for n in range(first, last) if n != 10]


def forget_last_batch(data: Path) -> None:
    """Simulates a driver that was killed before Spark committed the batch."""
    commits = data / "checkpoints" / "replay" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_replay_from_the_log(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    data = tmp_path / "data"
    begin(spark, broker, data, batch_messages=200).awaitTermination()
    assert rows(data, "replay/") == original()
    forget_last_batch(data)
    begin(spark, broker, data, batch_messages=200).awaitTermination()
    assert rows(data, "replay/") == original()
    assert not rows(data, "replay/replay/")

    ranged = {"subscribe": "t.1,t.2", "start": "50", "end": "2023-11-14T22:16:40", "prefix": "again/"}
    begin(spark, broker, data, **ranged).awaitTermination()
    assert rows(data, "again/") == [row for row in original(50, 200) if row[0] != "t.0"]
    begin(spark, broker, data, **ranged).awaitTermination()
    begin(spark, broker, data, **ranged, name="twice").awaitTermination()
    assert len(rows(data, "again/")) == 2 * 100


def test_replay_from_the_lake(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The offsets of two hours overlap, as after a clock was set back."""
    data = tmp_path / "data"
    parts = log_tasks(data / "log", RowFilter((Everything(),)), COLUMNS)
    table = pa.Table.from_batches([batch for part in parts for batch in part.read()])
    for hour, (begin_at, step) in enumerate(((0, 2), (1, 2))):
        some = table.take(list(range(begin_at, table.num_rows, step)))
        position = data / "lake" / f"date=2023-11-14/hour={22 + hour}"
        position.mkdir(parents=True)
        first, last = some["offset"][0].as_py(), some["offset"][-1].as_py()
        pq.write_table(some, position / f"{first:020}-{last:020}-0a1b2c3d.parquet")
    settings = {"source": "lake", "prefix": "lake/", "batch_messages": 120}
    begin(spark, broker, data, **settings).awaitTermination()
    assert rows(data, "lake/") == original()
    forget_last_batch(data)
    begin(spark, broker, data, **settings).awaitTermination()
    assert rows(data, "lake/") == original()
    begin(spark, broker, data, **settings, start="2023-11-14T22:16:40", name="later").awaitTermination()
    assert rows(data, "lake/") == original() + original(200)


def test_a_stopped_replay_resumes_at_the_next_slice(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A replay that is stopped while it waits resumes without duplicates."""
    data = tmp_path / "data"
    fast: dict[str, Any] = {"speed": 1000.0, "slice_seconds": 0.1, "prefix": "fast/"}
    begin(spark, broker, data, **fast).awaitTermination()
    assert rows(data, "fast/") == original()
    slow: dict[str, Any] = {"speed": 0.01, "slice_seconds": 500.0, "prefix": "slow/"}
    for _ in range(2):
        query = begin(spark, broker, data, **slow)
        wait_for(partial(is_waiting, spark), "the first slice to be out, and the second to be waited for")
        query.stop()
        assert query.exception() is None
        assert rows(data, "slow/") == original(0, 5)


def is_waiting(spark: SparkSession) -> bool:
    """Whether a thread of Spark sleeps in a batch."""
    threads = spark._jvm.java.lang.Thread.getAllStackTraces()  # type: ignore[union-attr]
    return any(
        "stream execution thread" in thread.getName() and any("Thread.sleep" in str(frame) for frame in frames)
        for thread, frames in threads.items()
    )
