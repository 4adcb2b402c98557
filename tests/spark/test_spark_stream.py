"""Streams over the log: checkpoints, limits, removed offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import _wrap_function

from log.log_builder import LogBuilder
from polycast.errors import StartError
from polycast.log.upkeep.sealing import seal
from polycast.spark import register
from polycast.spark.error_text import unwrap
from polycast.spark.source import PolycastSource


class Lane:
    """A stream from a log to a Parquet folder, run repeatedly with one checkpoint."""

    def __init__(self, spark: SparkSession, builder: LogBuilder, folder: Path) -> None:
        self.spark, self.builder, self.folder = spark, builder, folder
        self.rows_of_batches: list[int] = []

    def run(self, **options: object) -> None:
        reader = self.spark.readStream.format("polycast").option("path", str(self.builder.folder))
        for name, value in ({"startingOffsets": "earliest"} | options).items():
            reader = reader.option(name, str(value))
        query = (
            reader.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .option("path", str(self.folder / "rows"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.rows_of_batches += [progress["numInputRows"] for progress in query.recentProgress]

    def rows(self) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / "rows"))

    def check(self, first: int = 0) -> None:
        found = self.rows().orderBy("offset").collect()
        expected = self.builder.rows[first:]
        assert [row.offset for row in found] == [row["offset"] for row in expected]
        assert [bytes(row.payload) for row in found] == [row["payload"] for row in expected]


def test_a_stream_resumes_from_its_checkpoint(spark: SparkSession, builder: LogBuilder, tmp_path: Path) -> None:
    lane = Lane(spark, builder, tmp_path)
    lane.run()
    lane.check()
    builder.segment(25, 5)
    lane.run(startingOffsets="latest")
    lane.check()
    lane.run()
    lane.check()
    for path in builder.folder.glob("*.arrows"):
        seal(path)
    builder.segment(10)
    lane.run()
    lane.check()


def test_batch_limits(spark: SparkSession, builder: LogBuilder, tmp_path: Path) -> None:
    lane = Lane(spark, builder, tmp_path)
    lane.run(maxOffsetsPerTrigger=120)
    assert [rows for rows in lane.rows_of_batches if rows] == [120, 120, 60]
    lane.check()
    builder.segment(50, 50, 50, payload=bytes(600_000))
    lane.run(maxBytesPerTrigger=40_000_000)
    assert [rows for rows in lane.rows_of_batches if rows][3:] == [50, 50, 50]
    lane.check()


def test_removed_offsets(spark: SparkSession, builder: LogBuilder, tmp_path: Path) -> None:
    lane = Lane(spark, builder, tmp_path)
    lane.run()
    builder.segment(100)
    builder.segment(30)
    for path in builder.folder.glob("*"):
        if path.stem.isdigit() and int(path.stem) <= 300:
            path.unlink()
    with pytest.raises(StreamingQueryException) as raised:
        lane.run()
    reported = unwrap(raised.value)
    assert isinstance(reported, StartError)
    assert str(reported) == "offsets 300 to 399 were removed: the log starts at offset 400"
    assert reported.hint.startswith("failOnDataLoss=false skips them")
    lane.run(failOnDataLoss="false")
    assert lane.rows().count() == 330
    assert lane.rows().where("offset >= 400").count() == 30


def test_a_checkpoint_of_another_log(spark: SparkSession, builder: LogBuilder, tmp_path: Path) -> None:
    lane = Lane(spark, builder, tmp_path)
    lane.run()
    for path in builder.folder.glob("*.*"):
        if path.stem.isdigit() and int(path.stem) > 0:
            path.unlink()
    with pytest.raises(StreamingQueryException) as raised:
        lane.run()
    assert str(unwrap(raised.value)) == "offset 300 is past the end of the log at 100"


def test_starting_a_stream_adds_no_keys_to_the_shared_map(
    spark: SparkSession, builder: LogBuilder, tmp_path: Path
) -> None:
    """Concurrent inserts into the map would corrupt it for the whole session."""
    wrapped = _wrap_function(spark.sparkContext, PolycastSource)
    java = spark.sparkContext._jvm
    assert java
    source = java.org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource(wrapped)
    spark._jsparkSession.dataSource().registerPython("polycast", source)
    try:
        before = set(wrapped.envVars().keySet())
        Lane(spark, builder, tmp_path).run()
        assert set(wrapped.envVars().keySet()) == before
    finally:
        register(spark)
