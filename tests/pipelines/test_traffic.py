"""Traffic statistics without Spark: counting in the workers, and files of windows."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from log.log_builder import BEGAN, SECOND
from pipelines.timed import Row, Timed, sent
from polycast.errors import RemoteError
from polycast.log.files.format import SCHEMA
from polycast.pipelines.runtime.runner import prepare_run
from polycast.pipelines.traffic.counts import count_batch, to_bucket, to_delays
from polycast.pipelines.traffic.windows import upsert

MINUTE = 60

# -- counting --------------------------------------------------------------------------------------------


def test_size_buckets() -> None:
    sizes = [*range(1000), 4095, 4096, 4097, 2**20 - 1, 2**20, 2**31 - 1]
    found = to_bucket(pa.array(sizes, pa.int64())).to_pylist()
    assert found[:128] == sizes[:128]
    assert all(abs(near - size) <= size / 128 for near, size in zip(found, sizes, strict=True))
    assert found == sorted(found)
    assert len(set(found[128:256])) == 64
    assert to_bucket(pa.array([0, 127])).to_pylist() == [0, 127]


def test_delays_are_not_negative() -> None:
    times = pa.array([1_000_000, 1_500_000, 9_000_000])
    assert to_delays(times, 2.0).to_pylist() == [1000.0, 500.0, 0.0]


def test_counts_per_window_topic_dialect_source_and_size(tmp_path: Path) -> None:
    builder = Timed(tmp_path)
    builder.add_rows(sent(500))
    batch = pa.RecordBatch.from_pylist(builder.rows, SCHEMA)
    now = BEGAN / SECOND + 1000
    wanted: dict[Any, list[Row]] = defaultdict(list)
    for row in builder.rows:
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


# -- files -----------------------------------------------------------------------------------------------


def not_null(found: pa.Table) -> pa.Table:
    """Spark marks columns without nulls as not nullable."""
    return found.cast(pa.schema([field.with_nullable(False) for field in found.schema]))


def table(*rows: tuple[int, str, int]) -> pa.Table:
    fields = [("window", pa.timestamp("us", tz="UTC")), ("topic", pa.string()), ("messages", pa.int64())]
    times = [datetime.fromtimestamp(window, UTC) for window, _, _ in rows]
    columns = [times, [topic for _, topic, _ in rows], [count for _, _, count in rows]]
    return pa.table(columns, schema=pa.schema(fields))


def test_upsert_replaces_values_by_key(tmp_path: Path) -> None:
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


# -- configuration ---------------------------------------------------------------------------------------


def test_publishing_needs_a_broker(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    Timed(tmp_path / "log").add_rows(sent(3))
    with pytest.raises(RemoteError, match=r"traffic publishes its results, and cannot reach tcp://127\.0\.0\.1:1"):
        prepare_run("traffic", tmp_path, "tcp://127.0.0.1:1")
    config = prepare_run("traffic", tmp_path, "tcp://127.0.0.1:1,tls://b:2?token=x", ["publish=false"])
    assert config.settings.window_seconds == 60
    assert config.at == "tcp://127.0.0.1:1,tls://b:2?token=x"
    assert prepare_run("traffic", tmp_path, "", ["publish=false"]).at == "tcp://127.0.0.1:7878"
