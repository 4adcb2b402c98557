"""The pipeline `archive`, from the log to the lake."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from log.log_builder import LogBuilder
from pipelines.lake import Row, expected, read
from polycast.log.upkeep.sealing import seal
from polycast.pipelines.runtime import runner
from polycast.pipelines.runtime.progress import BatchProgress
from polycast.pipelines.runtime.runner import RunReport, prepare_run, run_in_session


def run(spark: SparkSession, data: Path, *settings: str) -> tuple[RunReport, list[BatchProgress]]:
    reported: list[BatchProgress] = []
    config = prepare_run("archive", data, "tcp://127.0.0.1:1", settings, once=True)
    with runner.exclusive(config):
        return run_in_session(spark, config, reported.append, threading.Event()), reported


def test_archive_resumes_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = tmp_path, tmp_path / "lake"
    (data / "log").mkdir()
    builder = LogBuilder(data / "log")
    for _ in range(3):
        seal(builder.segment(1000, topics=("a", "b.c", "polycast/events/start")))

    def wanted() -> list[Row]:
        return expected([row for row in builder.rows if not row["topic"].startswith("polycast/")])

    report, reported = run(spark, data, "batch_bytes=1", "compact_files=2")
    assert read(lake) == wanted()
    assert [progress.rows for progress in reported] == [667, 667, 666]
    assert [(progress.offset, progress.lag) for progress in reported] == [(1000, 2000), (2000, 1000), (3000, 0)]
    assert (report.batches, report.rows, report.offset, report.lag) == (3, 2000, 3000, 0)
    assert report.lines[0].startswith(f"{lake}: 2 files")

    # the driver was killed between the lake's commit and Spark's: the batch is repeated
    for name in ("2", ".2.crc"):
        (data / "checkpoints" / "archive" / "commits" / name).unlink(missing_ok=True)
    builder.segment(1000, 500)
    report, reported = run(spark, data)
    assert [progress.batch for progress in reported] == [2, 3]
    assert read(lake) == wanted()

    # a new checkpoint with the same lake
    (data / "checkpoints" / "archive").rename(tmp_path / "lost")
    report, _ = run(spark, data)
    assert (report.rows, report.offset) == (0, 4500)
    assert read(lake) == wanted()
    others_read(spark, lake, wanted())


def others_read(spark: SparkSession, lake: Path, rows: list[Row]) -> None:
    frame = pl.scan_parquet(f"{lake}/**/*.parquet", hive_partitioning=True).sort("offset").collect()
    assert frame["payload"].to_list() == [row["payload"] for row in rows]
    assert set(frame.columns) == {*rows[0]} | {"date"}
    plain = duckdb.execute(f"select count(*) from read_parquet('{lake}/**/*.parquet', hive_partitioning=false)")
    assert plain.fetchall() == [(len(rows),)]
    found = spark.read.parquet(str(lake))
    assert found.columns == [*pq.read_schema(next(lake.glob("*/*/*.parquet"))).names, "date", "hour"]
    assert found.where("hour = 22").count() == sum(row["hour"] == rows[0]["hour"] for row in rows)


def test_an_empty_log_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    LogBuilder(tmp_path / "log").segment()
    report, reported = run(spark, tmp_path)
    assert (report.rows, report.offset, report.lag) == (0, 0, 0)
    assert [progress.rows for progress in reported] in ([], [0])
    assert not list((tmp_path / "lake").rglob("*.parquet"))
