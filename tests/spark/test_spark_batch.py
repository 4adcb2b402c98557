"""Batch queries over the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from log.log_builder import BEGAN, LogBuilder, Row
from polycast.errors import StartError, UsageError
from polycast.log.read.query import RowFilter
from polycast.model import Exact
from polycast.spark.error_text import unwrap
from polycast.spark.fetch import fetch, from_batch, to_batch


def read(spark: SparkSession, builder: LogBuilder, schema: str = "", **options: object) -> DataFrame:
    reader = spark.read.format("polycast").options(**{name: str(value) for name, value in options.items()})
    if "path" not in options and "at" not in options:
        reader = reader.option("path", str(builder.folder))
    return (reader.schema(schema) if schema else reader).load()


def offsets(rows: DataFrame) -> list[int]:
    return sorted(row.offset for row in rows.select("offset").collect())


def expected(builder: LogBuilder, **wanted: Any) -> list[int]:
    return [row["offset"] for row in builder.rows if all(row[name] == value for name, value in wanted.items())]


def moment(offset: int) -> datetime:
    return datetime.fromtimestamp(BEGAN / 1e6, UTC) + timedelta(seconds=offset)


def to_row(row: Any) -> Row:
    values = row.asDict()
    began = values["time"].astimezone(UTC)
    micros = (began - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return {**values, "time": micros, "payload": bytes(values["payload"])}


def test_reads_all_rows_and_columns(spark: SparkSession, builder: LogBuilder) -> None:
    table = read(spark, builder)
    assert table.schema.simpleString() == (
        "struct<offset:bigint,topic:string,sequence:bigint,time:timestamp,dialect:string,format:string,"
        "payload:binary,source:string>"
    )
    assert sorted(map(to_row, table.collect()), key=lambda row: row["offset"]) == builder.rows
    assert read(spark, builder, path=builder.folder.parent).count() == 300


def test_stretches_are_offset_ranges(spark: SparkSession, builder: LogBuilder) -> None:
    reported = read(
        spark, builder, stretches="true", startingOffsets=150, endingOffsets=280, minPartitions=3
    ).toArrow()
    batch = reported.sort_by("first").combine_chunks().to_batches()[0]
    assert any(stretch.position for stretch in from_batch(batch))
    assert to_batch(from_batch(batch)).equals(batch)
    wanted = RowFilter((Exact("a"),))
    found = pa.Table.from_batches(fetch(builder.folder, [batch], wanted, ["offset", "payload"])).to_pylist()
    right = [row for row in builder.rows if row["topic"] == "a" and 150 <= row["offset"] < 280]
    assert found == [{"offset": row["offset"], "payload": row["payload"]} for row in right]
    assert to_batch([]).num_rows == 0


def test_a_schema_selects_columns(spark: SparkSession, builder: LogBuilder) -> None:
    table = read(spark, builder, "topic string, offset long")
    assert table.columns == ["topic", "offset"]
    assert sorted(map(tuple, table.collect())) == sorted((row["topic"], row["offset"]) for row in builder.rows)


@pytest.mark.parametrize(
    ("options", "first", "after"),
    [
        ({"startingOffsets": 250}, 250, 300),
        ({"startingOffsets": "earliest", "endingOffsets": 120}, 0, 120),
        ({"STARTINGOFFSETS": 90, "endingoffsets": 110, "minPartitions": 5}, 90, 110),
        ({"startingTimestamp": moment(20).isoformat(), "endingTimestamp": moment(220).isoformat()}, 20, 220),
        ({"startingTimestamp": int(moment(280).timestamp() * 1000)}, 280, 300),
        ({"endingOffsets": "latest"}, 0, 300),
    ],
)
def test_offset_and_time_ranges(
    spark: SparkSession, builder: LogBuilder, options: dict[str, Any], first: int, after: int
) -> None:
    assert offsets(read(spark, builder, **options)) == list(range(first, after))


def test_topics_and_their_sequences(spark: SparkSession, builder: LogBuilder) -> None:
    assert offsets(read(spark, builder, subscribe="b.>")) == expected(builder, topic="b.c")
    assert offsets(read(spark, builder, subscribe="~c, a")) == expected(builder)
    assert offsets(read(spark, builder, subscribe="nothing")) == []
    some = read(spark, builder, startingOffsets='{"a": 140}', endingOffsets='{"b.c": 3}')
    assert offsets(some) == [row["offset"] for row in builder.rows if _is_between(row)]


def _is_between(row: Row) -> bool:
    return bool(row["sequence"] >= 140 if row["topic"] == "a" else row["sequence"] < 3)


def test_reserved_topics_are_excluded_unless_named(spark: SparkSession, builder: LogBuilder) -> None:
    builder.segment(10, topics=["polycast/events/connect"])
    assert read(spark, builder).count() == 300
    assert read(spark, builder, subscribe="polycast/>").count() == 10


FILTERS: dict[str, Callable[[Row], bool]] = {
    "topic = 'a'": lambda row: row["topic"] == "a",
    "topic in ('a', 'x') and offset < 150": lambda row: row["topic"] == "a" and row["offset"] < 150,
    "topic like 'b%' and sequence between 10 and 20": lambda row: (
        row["topic"] == "b.c" and 10 <= row["sequence"] <= 20
    ),
    "offset = 123": lambda row: row["offset"] == 123,
    "offset in (1, 150, 299)": lambda row: row["offset"] in (1, 150, 299),
    f"time >= timestamp'{moment(150):%Y-%m-%d %H:%M:%S}' and time < timestamp'{moment(160):%Y-%m-%d %H:%M:%S}'": (
        lambda row: 150 <= row["offset"] < 160
    ),
    "not (topic = 'a') and offset % 2 = 1": lambda row: row["topic"] != "a" and row["offset"] % 2 == 1,
    "topic = 'a' or offset > 290": lambda row: row["topic"] == "a" or row["offset"] > 290,
    "source like '%:5' and dialect = 'hermod' and topic is not null": lambda row: True,
    "length(payload) > 5 and topic like '%c'": lambda row: len(row["payload"]) > 5 and row["topic"] == "b.c",
    "topic > 'a' and topic is null": lambda row: False,
}


def test_pushed_down_filters_select_the_same_rows(spark: SparkSession, builder: LogBuilder) -> None:
    for text, chosen in FILTERS.items():
        found = offsets(read(spark, builder).where(text))
        assert found == [row["offset"] for row in builder.rows if chosen(row)], text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/nowhere/at/all"}, "/nowhere/at/all does not exist"),
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset'"),
        ({"schema": "topic string, colour string"}, "messages have no column 'colour'"),
    ],
)
def test_bad_input(spark: SparkSession, builder: LogBuilder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, builder, **options).collect()
    reported = unwrap(raised.value)
    assert str(reported).startswith(message)
    assert reported.hint
    assert isinstance(reported, UsageError | StartError)
    assert "\n" not in f"{reported}{reported.hint}"


def test_removed_segments(spark: SparkSession, builder: LogBuilder) -> None:
    (builder.folder / "00000000000000000000.parquet").unlink()
    assert offsets(read(spark, builder)) == list(range(100, 300))
    with pytest.raises(PySparkException) as raised:
        read(spark, builder, startingOffsets=50).count()
    assert str(unwrap(raised.value)) == "offsets 50 to 99 were removed: the log starts at offset 100"
    assert offsets(read(spark, builder, startingOffsets=50, failOnDataLoss="false")) == list(range(100, 300))


def test_temporary_view_in_sql(spark: SparkSession, builder: LogBuilder) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW m USING polycast OPTIONS (path '{builder.folder}', subscribe 'a')"
    )
    assert spark.sql("SELECT count(*) AS n FROM m").collect()[0].n == len(expected(builder, topic="a"))
