"""`polycast.spark.table` returns the same rows as the data source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import polycast.spark
from log.log_builder import LogBuilder, half_sealed
from polycast.errors import UsageError
from polycast.log.files.folder import segments
from polycast.log.upkeep.sealing import seal
from polycast.spark.table import find_sealed

TOPICS = ("orders", "orders.new", "borders", "polycast/events", "")
PATTERNS = (">", "orders", "orders>", "~der", "polycast/>", "=polycast/events,nothing", "~")


@pytest.fixture
def mixed(tmp_path: Path) -> LogBuilder:
    """Two sealed segments and a hot one; some topics are reserved."""
    return half_sealed(tmp_path / "data" / "log", TOPICS)


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def by_source(spark: SparkSession, folder: Path, subscribe: str) -> DataFrame:
    return spark.read.format("polycast").option("path", str(folder)).option("subscribe", subscribe).load()


def test_table_and_source_have_the_same_rows(spark: SparkSession, mixed: LogBuilder) -> None:
    found = {
        pattern: rows_of(polycast.spark.table(spark, str(mixed.folder.parent), pattern)) for pattern in PATTERNS
    }
    assert found == {pattern: rows_of(by_source(spark, mixed.folder, pattern)) for pattern in PATTERNS}
    assert {len(rows) for rows in found.values()} == {60, 120, 180, 240}


def test_the_source_reads_only_the_hot_end(spark: SparkSession, mixed: LogBuilder) -> None:
    rows = polycast.spark.table(spark, str(mixed.folder))
    plan = rows.select("topic").where("offset < 150")._jdf.queryExecution().toString()
    assert "ReadSchema: struct<offset:bigint,topic:string>" in plan
    assert plan.count("BatchScan polycast") == 1
    assert find_sealed(mixed.folder).next == 200


def test_a_segment_sealed_during_the_query(spark: SparkSession, mixed: LogBuilder) -> None:
    rows = polycast.spark.table(spark, str(mixed.folder))
    before = rows_of(rows)
    seal(segments(mixed.folder)[-1].path)
    assert rows_of(rows) == before == rows_of(polycast.spark.table(spark, str(mixed.folder)))


def remove_one(folder: Path) -> None:
    segments(folder)[1].path.unlink()


def damage_one(folder: Path) -> None:
    path = segments(folder)[1].path
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("harm", [remove_one, damage_one])
def test_missing_segments_are_reported(
    spark: SparkSession, mixed: LogBuilder, harm: Callable[[Path], None]
) -> None:
    harm(mixed.folder)
    assert find_sealed(mixed.folder).next == 100
    with pytest.raises(PySparkException) as failed:
        polycast.spark.table(spark, str(mixed.folder)).count()
    assert "offsets 100 to 199 cannot be read" in str(polycast.spark.explain(failed.value))
    left = polycast.spark.table(spark, str(mixed.folder), "~", fail_on_data_loss=False)
    assert {row["offset"] for row in left.select("offset").collect()} < {*range(100), *range(200, 300)}


def test_segments_removed_after_planning(spark: SparkSession, mixed: LogBuilder) -> None:
    lenient = polycast.spark.table(spark, str(mixed.folder), fail_on_data_loss=False)
    strict = polycast.spark.table(spark, str(mixed.folder))
    whole = lenient.count()
    segments(mixed.folder)[0].path.unlink()
    with pytest.raises(Py4JJavaError) as failed:
        strict.count()
    assert "00000000000000000000.parquet" in polycast.spark.explain(failed.value)
    assert 0 < lenient.count() < whole


def test_bad_input(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a log"):
        polycast.spark.table(spark, str(tmp_path))
    with pytest.raises(UsageError, match="a pattern cannot be empty"):
        polycast.spark.table(spark, str(tmp_path), "")
