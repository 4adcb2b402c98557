"""The log: every accepted message, in one order, as a folder of Arrow and Parquet files.

Imports point down:

    log | backup                append, durability announcements, recent messages in memory; backup and restore
    upkeep                      housekeeping: snapshots, sealing, retention
    repair                      recovery, salvage, verification
    write | read                group commit; queries, seeking, replay
    settings
    files                       file formats and the folder
    batch_ids | durable         plain data, without pyarrow
    times

Other packages use `log`, `backup`, `settings`, `batch_ids`, `durable`, `times`, `write.bulk`, `write.entry`,
`upkeep.sealing`, `repair.verify`, all of `files` except `damage` and `snapshot`, and all of `read` except
`segment_sources` and `snapshot_delta`. The rest is private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow.dataset as ds


def dataset(path: str | Path) -> ds.Dataset:
    """The whole log in a data folder or log folder as a pyarrow dataset, for DuckDB, Polars and pandas.

    The hot end is read into memory, each row once, also while a broker writes and seals. Later messages are in the
    next dataset. Logs a warning if messages are lost. Raises UsageError if there is no log, and LogDamageError.
    """
    from polycast.log.read.dataset import open_dataset  # pyarrow is slow to import

    return open_dataset(path)
