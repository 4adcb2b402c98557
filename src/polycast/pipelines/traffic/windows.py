"""Stores windows as Parquet, one file per hour, with the latest values of each key.

    FOLDER/date=2026-11-16/07.parquet

Files are replaced atomically. Writing the same rows again changes nothing.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polycast.log.files.disk import DISK
from polycast.log.files.folder import make_folder


def upsert(folder: Path, rows: pa.Table, keys: list[str]) -> None:
    """`rows` have unique keys and a column `window`, which selects the file."""
    rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))  # as Parquet returns them
    hours = pc.strftime(rows["window"], format="date=%Y-%m-%d/%H.parquet")
    for name in pc.unique(hours):
        path = folder / name.as_py()
        newer = rows.filter(pc.equal(hours, name))
        make_folder(path.parent, DISK)
        DISK.replace(path, _to_parquet(_merge(path, newer, keys)))


def _merge(path: Path, newer: pa.Table, keys: list[str]) -> pa.Table:
    if path.exists():
        older = pq.read_table(path, partitioning=None).cast(newer.schema)
        left = older.join(newer.select(keys), keys, join_type="left anti").select(newer.schema.names)
        newer = pa.concat_tables([left, newer])
    return newer.sort_by([(key, "ascending") for key in keys])


def _to_parquet(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", store_schema=False)
    return sink.getvalue()
