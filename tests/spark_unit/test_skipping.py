"""Files and row groups that cannot match are not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from log.log_builder import BEGAN, LogBuilder, stop
from polycast.errors import StartError
from polycast.log.files.sealed import SealedReader
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal
from polycast.spark.options import read_source_options
from polycast.spark.schema import ROWS
from polycast.spark.source import PushingReader, PushingSource
from polycast.spark.stream import LogStream

EPOCH = datetime.fromtimestamp(BEGAN / 1e6, UTC)


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogBuilder:
    """Ten sealed segments of ten row groups with ten messages each; segment N has only the topic tN."""
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    builder = LogBuilder(tmp_path)
    for number in range(10):
        seal(builder.segment(100, topics=[f"t{number}"]))
    stop(builder)
    return builder


class Reads:
    """Counts reads of row groups and columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.row_groups: Counter[str] = Counter()
        self.columns: set[str] = set()
        read = SealedReader.read

        def counted(reader: SealedReader, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
            self.row_groups[reader.path.name] += 1
            self.columns |= set(columns or ["all"])
            return read(reader, number, columns)

        monkeypatch.setattr(SealedReader, "read", counted)


@pytest.fixture
def reads(big: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def collect(builder: LogBuilder, filters: list[ds.Filter], schema: StructType = ROWS, **options: Any) -> list[int]:
    """Plans and reads in this process."""
    given = {"path": str(builder.folder)} | {name: str(value) for name, value in options.items()}
    reader = PushingSource(given).reader(schema)
    assert isinstance(reader, PushingReader)
    left = list(reader.pushFilters(filters))
    assert left == []
    batches = [batch for share in reader.partitions() for batch in reader.read(share)]
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


CASES: list[tuple[list[ds.Filter], range, int]] = [
    ([ds.EqualTo(("topic",), "t3")], range(300, 400), 10),
    ([ds.In(("topic",), ("t3", "t9"))], range(0), 20),
    ([ds.StringStartsWith(("topic",), "t5")], range(500, 600), 10),
    ([ds.StringContains(("topic",), "8")], range(800, 900), 10),
    ([ds.EqualTo(("topic",), "unknown")], range(0), 0),
    ([ds.GreaterThanOrEqual(("offset",), 455), ds.LessThan(("offset",), 475)], range(455, 475), 3),
    ([ds.EqualTo(("offset",), 77)], range(77, 78), 1),
    ([ds.GreaterThan(("sequence",), 94)], range(0), 10),
    ([ds.LessThanOrEqual(("time",), EPOCH + timedelta(seconds=19))], range(20), 2),
    ([ds.EqualTo(("topic",), "t3"), ds.LessThan(("offset",), 305)], range(300, 305), 1),
]


@pytest.mark.parametrize(("filters", "offsets", "row_groups"), CASES)
def test_filters_skip_row_groups(
    big: LogBuilder, reads: Reads, filters: list[ds.Filter], offsets: range, row_groups: int
) -> None:
    found = collect(big, filters)
    if len(offsets):
        assert found == list(offsets)
    assert reads.row_groups.total() == row_groups


def test_patterns_skip_whole_files(big: LogBuilder, reads: Reads) -> None:
    assert collect(big, [], subscribe="t4,t6>") == [*range(400, 500), *range(600, 700)]
    assert set(reads.row_groups) == {"00000000000000000400.parquet", "00000000000000000600.parquet"}


def test_offset_ranges_skip_row_groups(big: LogBuilder, reads: Reads) -> None:
    begin = EPOCH + timedelta(seconds=250)
    assert collect(big, [], startingTimestamp=begin.isoformat(), endingOffsets=270) == list(range(250, 270))
    assert reads.row_groups == {"00000000000000000200.parquet": 3}  # two for the rows, one to find the time


def test_only_needed_columns_are_read(big: LogBuilder, reads: Reads) -> None:
    schema = StructType([field for field in ROWS.fields if field.name in ("offset", "source")])
    collect(big, [ds.EqualTo(("topic",), "t3")], schema)
    assert reads.columns == {"offset", "source", "topic"}


def test_unused_offsets_do_not_count_for_batch_limits(tmp_path: Path) -> None:
    """An unclean stop can leave millions of them."""
    builder = LogBuilder(tmp_path)
    builder.segment(10)
    builder.skip(4_000_000)
    builder.segment(10, 10)
    stream = LogStream(read_source_options({"path": str(tmp_path)}, streaming=True), ["offset"])
    offset, batches = {"offset": 0}, []
    while (end := stream.latestOffset(offset, ReadMaxRows(8))) != offset:
        shares = stream.partitions(offset, end)
        batches.append(sum(batch.num_rows for share in shares for batch in stream.read(share)))
        offset = end
    stream.stop()
    assert batches == [8, 8, 8, 6]


def test_a_segment_removed_after_planning(big: LogBuilder) -> None:
    for fail in (True, False):
        given = {"path": str(big.folder), "failOnDataLoss": str(fail)}
        reader = PushingSource(given).reader(ROWS)
        shares = reader.partitions()
        for path in big.folder.glob("*.parquet"):
            if int(path.stem) < (200 if fail else 400):
                path.unlink()
        if fail:
            with pytest.raises(StartError, match=r"offsets 0 to 199 cannot be read: removed by retention"):
                rows_of(reader, shares)
        else:
            assert rows_of(reader, shares) == 600


def rows_of(reader: ds.DataSourceReader, shares: Sequence[ds.InputPartition]) -> int:
    return sum(batch.num_rows for share in shares for batch in to_batches(reader, share))


def to_batches(reader: ds.DataSourceReader, share: ds.InputPartition) -> Iterator[Any]:
    return iter(reader.read(share))
