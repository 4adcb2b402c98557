"""The columns of a message in Spark, and the columns that a query selects."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from polycast.errors import UsageError

ROWS = StructType(
    [
        StructField("offset", LongType()),
        StructField("topic", StringType()),
        StructField("sequence", LongType()),
        StructField("time", TimestampType()),
        StructField("dialect", StringType()),
        StructField("format", StringType()),
        StructField("payload", BinaryType()),
        StructField("source", StringType()),
    ]
)


def to_columns(schema: StructType, whole: StructType = ROWS) -> list[str]:
    """The selected columns: all, or those of a schema that the user gave."""
    known = {field.name: field.dataType for field in whole.fields}
    for field in schema.fields:
        if field.name not in known:
            rows = "messages" if whole is ROWS else "stretches"
            raise UsageError(f"{rows} have no column {field.name!r}", f"columns: {', '.join(known)}")
        if field.dataType != known[field.name]:
            right = known[field.name].simpleString()
            found = field.dataType.simpleString()
            raise UsageError(f"the column {field.name} is {right}, not {found}", f"select {right} and cast it")
    return [field.name for field in schema.fields]
