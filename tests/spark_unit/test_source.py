"""Options and schemas of the data source, validated without a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from log.log_builder import half_sealed
from polycast.errors import StartError, UsageError
from polycast.spark.error_text import HINT
from polycast.spark.schema import ROWS
from polycast.spark.source import PolycastSource


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/nowhere/at/all"}, "/nowhere/at/all does not exist"),
        ({"path": "/tmp"}, "/tmp is not a log"),
        ({"path": "/x", "at": "tcp://127.0.0.1:1"}, "both path and at are set"),
        ({"startingOffset": "earliest"}, "unknown option 'startingOffset'"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first'"),
        ({"startingOffsets": "latest"}, "startingOffsets is latest: a batch query would be empty"),
        ({"startingOffsets": "-1"}, "startingOffsets is '-1'"),
        (
            {"startingOffsets": 5, "startingTimestamp": 0},
            "startingOffsets and startingTimestamp exclude each other",
        ),
        ({"startingOffsets": 301}, "offset 301 is past the end of the log at 300"),
        ({"endingTimestamp": "yesterday"}, "endingTimestamp is 'yesterday'"),
        ({"minPartitions": 0}, "minPartitions is '0'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'"),
        ({"subscribe": "a,,b"}, "a pattern cannot be empty"),
        (
            {"schema": StructType().add("topic", "string").add("colour", "string")},
            "messages have no column 'colour'",
        ),
        ({"schema": StructType().add("payload", "string")}, "the column payload is binary, not string"),
    ],
)
def test_invalid_input_is_rejected_with_a_hint(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    builder = half_sealed(tmp_path / "log")
    schema = options.pop("schema", ROWS)
    given = {"path": str(builder.folder)} if not {"path", "at"} & options.keys() else {}
    with pytest.raises((UsageError, StartError)) as raised:
        PolycastSource(given | {name: str(value) for name, value in options.items()}).reader(schema).partitions()
    assert str(raised.value).startswith(message)
    assert HINT in str(raised.value)
    assert "\n" not in str(raised.value)


def test_spark_discovers_the_format() -> None:
    from pyspark_polycast import DefaultSource

    assert DefaultSource.name() == "polycast"
