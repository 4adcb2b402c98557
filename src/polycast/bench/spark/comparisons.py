"""The comparisons: each does the same work in two ways.

`COMPARISONS` measure Polycast beside Spark's Parquet source. `REMOTE_COMPARISONS` measure the source with `at`,
which requests rows from a broker, beside the source with `path`, which reads the folder of the same log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

from polycast.bench.spark.rows import read_source
from polycast.log.read.catalog import offset_bounds
from polycast.pipelines.archive.pipeline import plan, stage
from polycast.pipelines.traffic.pipeline import count, sum_up
from polycast.spark.options import read_source_options
from polycast.spark.table import table

WINDOW_SECONDS = 60
TARGET_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class BenchData:
    """The same rows as a log and as Parquet."""

    spark: SparkSession
    log: Path
    parquet: Path
    scratch: Path
    at: str = ""
    """The address of a broker with this log."""

    def table_rows(self) -> DataFrame:
        return table(self.spark, str(self.log))

    def log_rows(self, schema: str = "") -> DataFrame:
        return read_source(self.spark, "path", str(self.log), schema)

    def broker_rows(self, schema: str = "") -> DataFrame:
        return read_source(self.spark, "at", self.at, schema)

    def parquet_rows(self) -> DataFrame:
        return self.spark.read.parquet(str(self.parquet))


@dataclass(frozen=True)
class Comparison:
    name: str
    ours: Callable[[BenchData], object]
    baseline: Callable[[BenchData], object]
    aim: float
    """Target ratio of the rates, ours to the baseline."""


def drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def drain_two(rows: DataFrame) -> None:
    drain(rows.select("topic", "offset"))


def group(rows: DataFrame) -> None:
    drain(rows.groupBy("topic").count())


def measure_topics(rows: DataFrame) -> None:
    drain(rows.groupBy("topic").agg(F.count(F.lit(1)), F.sum(F.length("payload"))))


def of_parquet(work: Callable[[DataFrame], None]) -> Callable[[BenchData], None]:
    return lambda data: work(data.parquet_rows())


def archive(data: BenchData) -> None:
    """The work of the archive pipeline for one batch: workers write the files and return their names."""
    shutil.rmtree(data.scratch, ignore_errors=True)
    options = read_source_options({"path": str(data.log)}, streaming=False)
    partitions = plan(options, *offset_bounds(data.log))
    stage(data.spark, options, partitions, data.scratch, "bench/0", TARGET_BYTES).collect()


def write_parquet(data: BenchData) -> None:
    rows = data.parquet_rows()
    dated = rows.withColumn("date", F.to_date("time")).withColumn("hour", F.date_format("time", "HH"))
    writer = dated.write.mode("overwrite").partitionBy("date", "hour").option("compression", "zstd")
    writer.parquet(str(data.scratch))


def traffic(data: BenchData) -> None:
    reader = data.spark.read.format("polycast").option("path", str(data.log))
    stretches = reader.option("stretches", "true").load()
    drain(sum_up(count(stretches, data.log, ">", WINDOW_SECONDS), WINDOW_SECONDS))


def native_traffic(data: BenchData) -> None:
    """The same statistics with Spark's own functions."""
    size = F.length("payload")
    delay = (F.unix_millis(F.current_timestamp()) - F.unix_millis("time")).cast("double")
    groups = data.parquet_rows().groupBy(F.window("time", f"{WINDOW_SECONDS} seconds"), "topic", "dialect")
    drain(
        groups.agg(
            F.count(F.lit(1)),
            F.sum(size),
            F.percentile(size, F.array(F.lit(0.5), F.lit(0.9), F.lit(0.99))),
            F.max(size),
            F.approx_count_distinct("source", 0.02),
            F.avg(delay),
            F.max(delay),
        )
    )


TWO = "topic string, offset long"
PAYLOADS = "topic string, payload binary"

COMPARISONS = (
    Comparison("full scan, table", lambda data: drain(data.table_rows()), of_parquet(drain), 1.0),
    Comparison("group by topic, table", lambda data: group(data.table_rows()), of_parquet(group), 0.8),
    Comparison("two columns, table", lambda data: drain_two(data.table_rows()), of_parquet(drain_two), 1.0),
    Comparison("full scan, source", lambda data: drain(data.log_rows()), of_parquet(drain), 1.0),
    Comparison("group by topic, source", lambda data: group(data.log_rows()), of_parquet(group), 0.8),
    Comparison(
        "group by topic, source with a schema", lambda data: group(data.log_rows(TWO)), of_parquet(group), 0.8
    ),
    Comparison(
        "two columns, source, beside all of them", lambda data: drain(data.log_rows(TWO)), of_parquet(drain), 1.2
    ),
    Comparison("two columns, source", lambda data: drain(data.log_rows(TWO)), of_parquet(drain_two), 1.2),
    Comparison("archive", archive, write_parquet, 2.5),
    Comparison("traffic over history", traffic, native_traffic, 2.0),
)

REMOTE_COMPARISONS = (
    Comparison("full scan, at", lambda data: drain(data.broker_rows()), lambda data: drain(data.log_rows()), 0.7),
    Comparison(
        "group by topic, at with a schema",
        lambda data: group(data.broker_rows(TWO)),
        lambda data: group(data.log_rows(TWO)),
        0.7,
    ),
    Comparison(
        "bytes by topic, at with a schema",
        lambda data: measure_topics(data.broker_rows(PAYLOADS)),
        lambda data: measure_topics(data.log_rows(PAYLOADS)),
        0.7,
    ),
)
