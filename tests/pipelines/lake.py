"""Reads a lake with DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from log.log_builder import SECOND

HOUR = 3600
Row = dict[str, Any]


def read(lake: Path) -> list[Row]:
    """All rows, with the hour from the path in seconds since the epoch."""
    if not any(lake.glob("*/*/*.parquet")):
        return []
    found = duckdb.sql(
        f"""select "offset", topic, sequence, epoch_us(time) as time, dialect, format, payload, source,
            epoch(date::timestamp)::bigint + hour::int * {HOUR} as hour
            from read_parquet('{lake}/*/*/*.parquet', hive_partitioning=true) order by "offset" """
    )
    assert found
    rows: list[Row] = found.to_arrow_table().to_pylist()
    return rows


def expected(rows: list[Row]) -> list[Row]:
    return [row | {"hour": row["time"] // SECOND // HOUR * HOUR} for row in rows]
