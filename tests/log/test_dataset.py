"""`polycast.log.dataset`: the whole log for DuckDB, Polars and pandas."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest

from log.log_builder import flip, half_sealed
from log.log_rig import open_rig
from polycast.errors import LogDamageError, UsageError
from polycast.log import dataset


def test_sealed_and_hot_rows_in_every_tool(tmp_path: Path) -> None:
    half_sealed(tmp_path / "log")
    found = dataset(tmp_path)
    assert found.schema.names[:3] == ["offset", "topic", "sequence"]
    assert found.to_table(columns=["offset"])["offset"].to_pylist() == list(range(300))
    query = 'select topic, count(*) from found where "offset" >= 150 group by topic order by topic'
    assert duckdb.execute(query).fetchall() == [("a", 75), ("b.c", 75)]
    lazy = pl.scan_pyarrow_dataset(found).filter(pl.col("offset") >= 250)
    assert lazy.select(pl.len()).collect().item() == 50
    assert len(found.to_table().to_pandas()) == 300
    assert dataset(tmp_path / "log").count_rows() == 300


def test_each_row_once_while_the_log_is_written_rolled_and_sealed(tmp_path: Path) -> None:
    with open_rig(tmp_path, segment_bytes=65_536, seal=True, seal_share=1.0) as rig:
        sealed = 0
        while sealed < 10:
            rig.fill(3, size=15_000)
            offsets = dataset(str(tmp_path)).to_table(columns=["offset"])["offset"].to_pylist()
            assert sorted(offsets) == list(range(rig.log.next))
            sealed = rig.log.housekeeping.segments_sealed


def test_an_empty_log(tmp_path: Path) -> None:
    with open_rig(tmp_path):
        assert dataset(tmp_path).count_rows() == 0


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no log in"):
        dataset(tmp_path)


def test_damage_is_an_error(tmp_path: Path) -> None:
    half_sealed(tmp_path / "log")
    [hot] = (tmp_path / "log").glob("*.arrows")
    flip(hot, 1500)
    with pytest.raises(LogDamageError):
        dataset(tmp_path)
