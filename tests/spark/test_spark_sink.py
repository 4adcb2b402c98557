"""The sink: delivery to subscribers, repeated batches, invalid rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual alias
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kit.broker import Broker
from kit.subscribers import LISTEN, SUBSCRIBERS
from polycast.errors import StartError, UsageError
from polycast.spark import publish
from polycast.spark.error_text import unwrap


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(listen=LISTEN, data=tmp_path / "data") as running:
        yield running


def at(broker: Broker) -> str:
    return f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"


def write(rows: DataFrame, broker: Broker, **options: Any) -> None:
    rows.write.format("polycast").mode("append").option("at", at(broker)).options(**options).save()


def log_rows(spark: SparkSession, data: Path) -> list[tuple[str, int, bytes]]:
    rows = spark.read.format("polycast").option("path", str(data)).load().orderBy("offset")
    return [(row.topic, row.sequence, bytes(row.payload)) for row in rows.collect()]


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("t"), F.col("id") % 3).alias("topic"), F.col("id").cast("string").alias("payload")
    )


def test_subscribers_of_every_dialect_receive_the_rows(spark: SparkSession, broker: Broker) -> None:
    kinds = [(kind, kind.open(broker, "news", 0)) for kind in SUBSCRIBERS.values()]
    rows = spark.createDataFrame(
        [("news", b"one", "bytes"), ("news", b"two", "bytes")], "topic string, payload binary, format string"
    )
    write(rows.coalesce(1), broker)
    for kind, peer in kinds:
        with peer:
            peer.expect(kind.frame("news", 0, b"one") + kind.frame("news", 1, b"two"))


def test_all_partitions_are_one_batch_and_a_repeat_publishes_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    rows = numbers(spark, 3000, 4)
    write(rows, broker, batchId="night")
    found = log_rows(spark, tmp_path / "data")
    assert sorted(int(payload) for _, _, payload in found) == list(range(3000))
    assert {topic: n for topic, n, _ in found} == {"t0": 999, "t1": 999, "t2": 999}
    write(rows, broker, batchId="night")
    assert log_rows(spark, tmp_path / "data") == found
    write(rows.limit(5), broker)
    write(rows.limit(5), broker)
    assert len(log_rows(spark, tmp_path / "data")) == 3010
    write(rows.where("payload < 0").select("payload"), broker, topic="nobody")
    write(rows.limit(1).select("payload", F.lit(1).alias("other")), broker, topic="named")
    assert log_rows(spark, tmp_path / "data")[3010:] == [("named", 0, b"0")]


def test_a_stream_publishes_each_row_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    write(numbers(spark, 500), broker)
    echo(spark, broker, tmp_path)
    echo(spark, broker, tmp_path)
    write(numbers(spark, 100), broker)
    echo(spark, broker, tmp_path)
    found = [topic for topic, _, _ in log_rows(spark, tmp_path / "data")]
    assert len([topic for topic in found if not topic.startswith("echo/")]) == 600
    assert len([topic for topic in found if topic.startswith("echo/")]) == 600


def echo(spark: SparkSession, broker: Broker, folder: Path) -> None:
    rows = (
        spark.readStream.format("polycast")
        .option("path", str(folder / "data"))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 300)
        .load()
        .where("topic not like 'echo/%'")
        .withColumn("topic", F.concat(F.lit("echo/"), "topic"))
    )
    query = (
        rows.writeStream.format("polycast")
        .queryName("echo")
        .option("at", at(broker))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_output_modes(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Spark refuses update in a Python sink; the function for foreachBatch publishes each change, once."""
    counts = (
        source(spark, tmp_path)
        .groupBy("topic")
        .count()
        .select(F.concat_ws("=", "topic", "count").alias("payload"))
    )

    def start(mode: str, writer: DataStreamWriter) -> None:
        writer.outputMode(mode).option("checkpointLocation", str(tmp_path / mode)).trigger(
            availableNow=True
        ).start().awaitTermination()

    for extra in ("a", "b"):
        write(spark.sql(f"SELECT '{extra}' topic, '' payload UNION ALL SELECT 'b', ''"), broker)
        start("update", counts.writeStream.foreachBatch(publish(at(broker), topic="changes")))
        start("complete", counts.writeStream.format("polycast").option("at", at(broker)).option("topic", "tables"))
    found = log_rows(spark, tmp_path / "data")
    assert sorted(payload for topic, _, payload in found if topic == "changes") == [b"a=1", b"b=1", b"b=3"]
    assert sorted(payload for topic, _, payload in found if topic == "tables") == [b"a=1"] * 2 + [b"b=1", b"b=3"]
    with pytest.raises(PySparkException) as raised:
        start("update", counts.writeStream.format("polycast").option("at", at(broker)).option("topic", "changes"))
    error = unwrap(raised.value)
    assert isinstance(error, UsageError) and "foreachBatch(polycast.spark.publish(" in error.hint


def source(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.format("polycast").option("path", str(folder / "data")).option("subscribe", "a,b")
    return reader.option("startingOffsets", "earliest").load()


BAD: dict[str, tuple[str, dict[str, str], str]] = {
    "no payload": ("'a' topic", {}, "rows have no column payload, only topic"),
    "unreachable": (
        "'a' topic, 'b' payload",
        {"at": "tcp://127.0.0.1:1", "retrySeconds": "0"},
        "cannot reach tcp://127.0.0.1:1",
    ),
    "null topic": ("cast(null as string) topic, 'b' payload", {}, "refused: 422"),
    "null payload": ("'a' topic, cast(null as string) payload", {}, "refused: 422"),
    "topic too long": ("repeat('x', 2000) topic, 'b' payload", {}, "refused: 422"),
    "payload too large": ("'a' topic, repeat('x', 17000000) payload", {}, "refused: 4"),
    "format": ("'a' topic, 'b' payload, 'yaml' format", {}, "refused: 422"),
}


def test_invalid_rows_publish_nothing(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    for columns, options, message in BAD.values():
        good = spark.sql("SELECT 'a' topic, 'good' payload, 'text' format")
        bad = spark.sql(f"SELECT {columns}")
        with pytest.raises(PySparkException) as raised:
            write(good.union(bad) if "format" in columns else bad, broker, **options)
        error = unwrap(raised.value)
        assert message in str(error)
        assert isinstance(error, UsageError | StartError)
        assert "\n" not in f"{error}{error.hint}"
        assert "Traceback" not in str(error)
    assert log_rows(spark, tmp_path / "data") == []


def test_messages_cannot_be_overwritten(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(PySparkException) as raised:
        numbers(spark, 1).write.format("polycast").mode("overwrite").option("at", at(broker)).save()
    assert str(unwrap(raised.value)) == "messages cannot be overwritten"
