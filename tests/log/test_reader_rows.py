"""Reading across segments while they are written, sealed and removed."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from log.log_builder import LogBuilder, Row, flip, to_rows
from polycast.log.files.folder import Segment, remove_segment, segments
from polycast.log.files.format import REMOVED, SCHEMA, Gap
from polycast.log.read import reader as reading
from polycast.log.read.gaps import MISSING
from polycast.log.read.reader import Reader
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path)


def drain(reader: Reader, stop: int | None = None, rows: int = 8192) -> list[Row]:
    found: list[Row] = []
    while (batch := reader.read(stop, rows)) is not None:
        assert 0 < batch.num_rows <= rows
        assert batch.schema == SCHEMA
        found += to_rows([batch])
    return found


def mixed(builder: LogBuilder) -> None:
    """Sealed, sealed, hot, hot."""
    seal(builder.segment(5, 5))
    seal(builder.segment(30))
    builder.segment(1, 1, 1, 1)
    builder.segment(9)


def test_all_segments_in_their_order(builder: LogBuilder) -> None:
    mixed(builder)
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows
    assert reader.offset == builder.next == 53
    assert reader.skipped == []


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_from_every_offset_to_every_other(builder: LogBuilder, rows: int) -> None:
    mixed(builder)
    for start in range(0, builder.next, 4):
        for stop in range(0, builder.next + 2, 5):
            reader = Reader(builder.folder, start)
            assert drain(reader, stop, rows) == builder.rows[start:stop]
            assert drain(reader) == builder.rows[max(start, stop) :]
            reader.close()


def test_past_the_end_there_is_nothing(builder: LogBuilder) -> None:
    mixed(builder)
    reader = Reader(builder.folder, 1000)
    assert reader.read() is None
    assert (reader.offset, reader.skipped) == (1000, [])


def test_an_empty_folder(builder: LogBuilder) -> None:
    reader = Reader(builder.folder, 0)
    assert reader.read() is None
    builder.segment(2)
    assert drain(reader) == builder.rows


def test_reading_continues_with_later_groups(builder: LogBuilder) -> None:
    builder.begin()
    builder.add(2)
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows
    for count in (1, 5, 2):
        before = len(builder.rows)
        builder.add(count)
        assert drain(reader) == builder.rows[before:]
    before = len(builder.rows)
    builder.add(1)
    builder.begin()
    builder.add(4)
    assert drain(reader) == builder.rows[before:]


def test_rows_are_read_once(builder: LogBuilder) -> None:
    path = builder.begin()
    builder.add(2)
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows
    builder.add(3)
    flip(path, builder.positions[0] + 500)  # nobody comes by here any more
    assert drain(reader) == builder.rows[2:]
    assert reader.skipped == []


def test_small_groups_are_read_together(builder: LogBuilder) -> None:
    builder.segment(*[1] * 50)
    reader = Reader(builder.folder, 0)
    batch = reader.read()
    assert batch is not None
    assert batch.num_rows == 50


def test_a_segment_that_is_sealed_while_it_is_read(builder: LogBuilder) -> None:
    path = builder.segment(5, 5)
    builder.segment(5)
    reader = Reader(builder.folder, 0)
    assert reader.read(rows=2) is not None
    seal(path)
    assert drain(reader) == builder.rows[2:]


def test_a_segment_that_is_sealed_before_it_is_opened(builder: LogBuilder) -> None:
    path = builder.segment(5)
    builder.segment(5)
    reader = Reader(builder.folder, 0)
    found = segments(builder.folder)
    seal(path)
    with mock.patch.object(reading, "segments", side_effect=[found, *[segments(builder.folder)] * 20]):
        assert drain(reader) == builder.rows


def test_a_folder_listing_during_a_rename(builder: LogBuilder) -> None:
    """A segment that is missing in one listing is not skipped."""
    for _ in range(3):
        builder.segment(5)
    first, _, third = segments(builder.folder)
    reader = Reader(builder.folder, 0)
    reader.read()
    with mock.patch.object(reading, "segments", side_effect=[[first, third], *[segments(builder.folder)] * 20]):
        assert drain(reader) == builder.rows[5:]
    assert reader.skipped == []


def test_columns(builder: LogBuilder) -> None:
    mixed(builder)
    for columns in (["payload", "topic"], ["offset"], ["time", "offset"]):
        reader = Reader(builder.folder, 7, columns)
        found = []
        while (batch := reader.read(rows=10)) is not None:
            assert batch.schema.names == columns
            found += to_rows([batch])
        assert found == [{name: row[name] for name in columns} for row in builder.rows[7:]]


def test_a_closed_reader_continues(builder: LogBuilder) -> None:
    mixed(builder)
    reader = Reader(builder.folder, 0)
    assert reader.read(rows=3) is not None
    reader.close()
    assert drain(reader) == builder.rows[3:]


@pytest.mark.parametrize("offset", [4, 9, 10, 39, 41, 52])
def test_seek(builder: LogBuilder, offset: int) -> None:
    mixed(builder)
    reader = Reader(builder.folder, 0)
    reader.read(rows=2)
    reader.seek(offset)
    assert drain(reader) == builder.rows[offset:]


def test_row_groups_before_the_offset_are_not_decoded(
    builder: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    path = seal(builder.segment(10, 10, 10))
    assert path is not None
    flip(path, pq.read_metadata(path).row_group(0).column(6).data_page_offset + 40)
    reader = Reader(builder.folder, 12)
    assert drain(reader) == builder.rows[12:]
    assert reader.skipped == []


# -- gaps and what is missing ----------------------------------------------------------------------------


@pytest.mark.parametrize("sealing_them", [False, True])
def test_recorded_gaps_are_skipped(builder: LogBuilder, sealing_them: bool) -> None:
    builder.begin()
    builder.add(3)
    builder.skip(100)
    builder.add(2)
    builder.end()
    builder.skip(1000)
    builder.begin()
    builder.add(1)
    builder.end()
    if sealing_them:
        for segment in segments(builder.folder):
            seal(segment.path)
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows
    assert (reader.offset, reader.skipped) == (1106, [])
    reader = Reader(builder.folder, 50)
    assert drain(reader) == builder.rows[3:]
    assert reader.skipped == []


def test_stop_within_a_gap(builder: LogBuilder) -> None:
    builder.begin()
    builder.add(3)
    builder.skip(100)
    builder.add(2)
    reader = Reader(builder.folder, 0)
    assert drain(reader, stop=50) == builder.rows[:3]
    assert drain(reader) == builder.rows[3:]


def test_removed_segments_are_reported(builder: LogBuilder) -> None:
    builder.segment(5)
    seal(builder.segment(5))
    remove_segment(segments(builder.folder)[0])
    reader = Reader(builder.folder, 2)
    assert drain(reader) == builder.rows[5:]
    assert reader.skipped == [Gap(2, 5, REMOVED)]


def test_segments_that_are_removed_while_they_are_read(builder: LogBuilder) -> None:
    for _ in range(4):
        builder.segment(3, 2)
    reader = Reader(builder.folder, 0)
    assert reader.read(rows=1) is not None
    for segment in segments(builder.folder)[:3]:
        remove_segment(segment)
    assert drain(reader) == builder.rows[1:5] + builder.rows[15:]
    assert reader.skipped == [Gap(5, 15, REMOVED)]


def test_a_missing_segment_is_reported(builder: LogBuilder) -> None:
    for _ in range(3):
        builder.segment(5)
    segments(builder.folder)[1].path.unlink()
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows[:5] + builder.rows[10:]
    assert reader.skipped == [Gap(5, 10, MISSING)]


def test_damage_is_named_once_with_its_file_and_offsets(
    builder: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    path = builder.segment(5, 5, 5)
    flip(path, builder.positions[1] + 900)
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows[:5] + builder.rows[10:]
    [gap] = reader.skipped
    assert (gap.first, gap.next) == (5, 10)
    assert gap.reason == f"{path}, byte {builder.positions[1]:,}: the group's checksum is wrong"
    [record] = caplog.records
    assert "offsets 5 to 9 cannot be read" in record.getMessage()


def test_a_block_of_zeros_in_the_middle(builder: LogBuilder) -> None:
    path = builder.segment(5, 5, 5)
    begin, end = builder.positions[1:]
    builder.segment(2)
    data = bytearray(path.read_bytes())
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows[:5] + builder.rows[10:]
    assert [(gap.first, gap.next) for gap in reader.skipped] == [(5, 10)]


def test_the_end_of_a_segment_is_damaged_and_one_follows(
    builder: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    path = builder.segment(5, 5)
    flip(path, builder.positions[1] + 900)
    reader = Reader(builder.folder, 0)
    assert drain(reader) == builder.rows[:5]
    assert reader.read() is None
    assert len(caplog.records) == 1  # however often it is asked
    assert reader.skipped == []  # how much is missing is not known yet
    builder.segment(3)
    assert drain(reader) == builder.rows[10:]
    assert [(gap.first, gap.next) for gap in reader.skipped] == [(5, 10)]


def test_a_payload_that_looks_like_a_group_is_none(tmp_path: Path) -> None:
    """A group with a file of this log as payload is damaged."""
    builder = LogBuilder(tmp_path)
    path = builder.begin()
    builder.add(2)
    builder.end()
    copy = path.read_bytes()
    path.unlink()
    builder = LogBuilder(tmp_path)
    builder.begin()
    builder.add(2)
    builder.add(1, payload=copy + copy)
    builder.add(1)
    builder.end()
    flip(path, builder.positions[1] + 100)
    reader = Reader(tmp_path, 0)
    assert drain(reader) == [builder.rows[0], builder.rows[1], builder.rows[3]]
    assert [(gap.first, gap.next) for gap in reader.skipped] == [(2, 3)]


def test_a_sealed_file_with_other_rows_is_damage(builder: LogBuilder) -> None:
    """Every checksum of Parquet is valid, but the rows differ from the sealed ones."""
    path = seal(builder.segment(5))
    assert path is not None
    table = pq.read_table(path)
    table = table.set_column(6, "payload", pc.binary_replace_slice(table["payload"], 0, 1, b"X"))
    pq.write_table(table, path, write_page_checksum=True)
    assert pq.read_metadata(path).metadata[b"polycast"]
    reader = Reader(builder.folder, 0)
    assert reader.read() is None
    topics = Reader(builder.folder, 0, ["topic"]).read()
    assert topics is not None
    assert topics["topic"].to_pylist() == table["topic"].to_pylist()


def test_a_hot_file_beside_its_sealed_twin(builder: LogBuilder) -> None:
    """A stop during sealing leaves both files."""
    path = builder.segment(5)
    data = path.read_bytes()
    sealed = seal(path)
    path.write_bytes(data)
    assert segments(builder.folder) == [Segment(0, sealed or path)]
    assert drain(Reader(builder.folder, 0)) == builder.rows
