"""Options and schemas of the sink, validated without a session."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from polycast.errors import UsageError
from polycast.spark.source import PolycastSource

AT = {"at": "tcp://127.0.0.1:1"}
ROWS = StructType().add("topic", "string").add("payload", "string")
NUMBERS = StructType().add("topic", "string").add("payload", "integer")


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (StructType().add("topic", "string"), AT, "rows have no column payload, only topic"),
        (StructType().add("payload", "string"), AT, "rows have no column topic"),
        (NUMBERS, AT, "payload is int, not string or binary"),
        (ROWS, {"at": ""}, "the option at is missing"),
        (ROWS, AT | {"kafka": "x"}, "unknown option 'kafka'"),
    ],
)
def test_invalid_schemas_and_options_are_rejected(
    schema: StructType, options: dict[str, str], message: str
) -> None:
    for writer in (PolycastSource(options).writer, PolycastSource(options).streamWriter):
        with pytest.raises(UsageError, match=message) as raised:
            writer(schema, False)
        assert "\n" not in str(raised.value)
