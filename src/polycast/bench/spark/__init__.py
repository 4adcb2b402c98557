"""The Spark side measured: beside Spark's own Parquet over the same rows, turn by turn, in the same session."""
