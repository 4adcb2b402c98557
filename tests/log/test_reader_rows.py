"""Reading across segments while they are written, sealed and removed."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from log.shelf import Row, Shelf, flip, to_rows
from polycast.log.files.folder import Segment, remove_segment, segments
from polycast.log.files.format import SCHEMA, Gap
from polycast.log.read import reader as reading
from polycast.log.read.reader import MISSING, REMOVED, Reader
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def drain(reader: Reader, stop: int | None = None, rows: int = 8192) -> list[Row]:
    found: list[Row] = []
    while (batch := reader.read(stop, rows)) is not None:
        assert 0 < batch.num_rows <= rows
        assert batch.schema == SCHEMA
        found += to_rows([batch])
    return found


def mixed(shelf: Shelf) -> None:
    """Sealed, sealed, hot, hot."""
    seal(shelf.segment(5, 5))
    seal(shelf.segment(30))
    shelf.segment(1, 1, 1, 1)
    shelf.segment(9)


def test_all_segments_in_their_order(shelf: Shelf) -> None:
    mixed(shelf)
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows
    assert reader.offset == shelf.next == 53
    assert reader.skipped == []


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_from_every_offset_to_every_other(shelf: Shelf, rows: int) -> None:
    mixed(shelf)
    for start in range(0, shelf.next, 4):
        for stop in range(0, shelf.next + 2, 5):
            reader = Reader(shelf.folder, start)
            assert drain(reader, stop, rows) == shelf.rows[start:stop]
            assert drain(reader) == shelf.rows[max(start, stop) :]
            reader.close()


def test_past_the_end_there_is_nothing(shelf: Shelf) -> None:
    mixed(shelf)
    reader = Reader(shelf.folder, 1000)
    assert reader.read() is None
    assert (reader.offset, reader.skipped) == (1000, [])


def test_an_empty_folder(shelf: Shelf) -> None:
    reader = Reader(shelf.folder, 0)
    assert reader.read() is None
    shelf.segment(2)
    assert drain(reader) == shelf.rows


def test_reading_continues_with_later_groups(shelf: Shelf) -> None:
    shelf.begin()
    shelf.add(2)
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows
    for count in (1, 5, 2):
        before = len(shelf.rows)
        shelf.add(count)
        assert drain(reader) == shelf.rows[before:]
    before = len(shelf.rows)
    shelf.add(1)
    shelf.begin()
    shelf.add(4)
    assert drain(reader) == shelf.rows[before:]


def test_rows_are_read_once(shelf: Shelf) -> None:
    path = shelf.begin()
    shelf.add(2)
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows
    shelf.add(3)
    flip(path, shelf.positions[0] + 500)  # nobody comes by here any more
    assert drain(reader) == shelf.rows[2:]
    assert reader.skipped == []


def test_small_groups_are_read_together(shelf: Shelf) -> None:
    shelf.segment(*[1] * 50)
    reader = Reader(shelf.folder, 0)
    batch = reader.read()
    assert batch is not None
    assert batch.num_rows == 50


def test_a_segment_that_is_sealed_while_it_is_read(shelf: Shelf) -> None:
    path = shelf.segment(5, 5)
    shelf.segment(5)
    reader = Reader(shelf.folder, 0)
    assert reader.read(rows=2) is not None
    seal(path)
    assert drain(reader) == shelf.rows[2:]


def test_a_segment_that_is_sealed_before_it_is_opened(shelf: Shelf) -> None:
    path = shelf.segment(5)
    shelf.segment(5)
    reader = Reader(shelf.folder, 0)
    found = segments(shelf.folder)
    seal(path)
    with mock.patch.object(reading, "segments", side_effect=[found, *[segments(shelf.folder)] * 20]):
        assert drain(reader) == shelf.rows


def test_a_folder_listing_during_a_rename(shelf: Shelf) -> None:
    """A segment that is missing in one listing is not skipped."""
    for _ in range(3):
        shelf.segment(5)
    first, _, third = segments(shelf.folder)
    reader = Reader(shelf.folder, 0)
    reader.read()
    with mock.patch.object(reading, "segments", side_effect=[[first, third], *[segments(shelf.folder)] * 20]):
        assert drain(reader) == shelf.rows[5:]
    assert reader.skipped == []


def test_columns(shelf: Shelf) -> None:
    mixed(shelf)
    for columns in (["payload", "topic"], ["offset"], ["time", "offset"]):
        reader = Reader(shelf.folder, 7, columns)
        found = []
        while (batch := reader.read(rows=10)) is not None:
            assert batch.schema.names == columns
            found += to_rows([batch])
        assert found == [{name: row[name] for name in columns} for row in shelf.rows[7:]]


def test_a_closed_reader_continues(shelf: Shelf) -> None:
    mixed(shelf)
    reader = Reader(shelf.folder, 0)
    assert reader.read(rows=3) is not None
    reader.close()
    assert drain(reader) == shelf.rows[3:]


@pytest.mark.parametrize("offset", [4, 9, 10, 39, 41, 52])
def test_seek(shelf: Shelf, offset: int) -> None:
    mixed(shelf)
    reader = Reader(shelf.folder, 0)
    reader.read(rows=2)
    reader.seek(offset)
    assert drain(reader) == shelf.rows[offset:]


def test_row_groups_before_the_offset_are_not_decoded(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    path = seal(shelf.segment(10, 10, 10))
    assert path is not None
    flip(path, pq.read_metadata(path).row_group(0).column(6).data_page_offset + 40)
    reader = Reader(shelf.folder, 12)
    assert drain(reader) == shelf.rows[12:]
    assert reader.skipped == []


# -- gaps and what is missing ----------------------------------------------------------------------------


@pytest.mark.parametrize("sealing_them", [False, True])
def test_recorded_gaps_are_skipped(shelf: Shelf, sealing_them: bool) -> None:
    shelf.begin()
    shelf.add(3)
    shelf.skip(100)
    shelf.add(2)
    shelf.end()
    shelf.skip(1000)
    shelf.begin()
    shelf.add(1)
    shelf.end()
    if sealing_them:
        for segment in segments(shelf.folder):
            seal(segment.path)
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows
    assert (reader.offset, reader.skipped) == (1106, [])
    reader = Reader(shelf.folder, 50)
    assert drain(reader) == shelf.rows[3:]
    assert reader.skipped == []


def test_stop_within_a_gap(shelf: Shelf) -> None:
    shelf.begin()
    shelf.add(3)
    shelf.skip(100)
    shelf.add(2)
    reader = Reader(shelf.folder, 0)
    assert drain(reader, stop=50) == shelf.rows[:3]
    assert drain(reader) == shelf.rows[3:]


def test_removed_segments_are_reported(shelf: Shelf) -> None:
    shelf.segment(5)
    seal(shelf.segment(5))
    remove_segment(segments(shelf.folder)[0])
    reader = Reader(shelf.folder, 2)
    assert drain(reader) == shelf.rows[5:]
    assert reader.skipped == [Gap(2, 5, REMOVED)]


def test_segments_that_are_removed_while_they_are_read(shelf: Shelf) -> None:
    for _ in range(4):
        shelf.segment(3, 2)
    reader = Reader(shelf.folder, 0)
    assert reader.read(rows=1) is not None
    for segment in segments(shelf.folder)[:3]:
        remove_segment(segment)
    assert drain(reader) == shelf.rows[1:5] + shelf.rows[15:]
    assert reader.skipped == [Gap(5, 15, REMOVED)]


def test_a_missing_segment_is_reported(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.segment(5)
    segments(shelf.folder)[1].path.unlink()
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows[:5] + shelf.rows[10:]
    assert reader.skipped == [Gap(5, 10, MISSING)]


def test_damage_is_named_once_with_its_file_and_offsets(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    path = shelf.segment(5, 5, 5)
    flip(path, shelf.positions[1] + 900)
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows[:5] + shelf.rows[10:]
    [gap] = reader.skipped
    assert (gap.first, gap.next) == (5, 10)
    assert gap.reason == f"{path}, byte {shelf.positions[1]:,}: the group's checksum is wrong"
    [record] = caplog.records
    assert "offsets 5 to 9 cannot be read" in record.getMessage()


def test_a_block_of_zeros_in_the_middle(shelf: Shelf) -> None:
    path = shelf.segment(5, 5, 5)
    begin, end = shelf.positions[1:]
    shelf.segment(2)
    data = bytearray(path.read_bytes())
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows[:5] + shelf.rows[10:]
    assert [(gap.first, gap.next) for gap in reader.skipped] == [(5, 10)]


def test_the_end_of_a_segment_is_damaged_and_one_follows(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    path = shelf.segment(5, 5)
    flip(path, shelf.positions[1] + 900)
    reader = Reader(shelf.folder, 0)
    assert drain(reader) == shelf.rows[:5]
    assert reader.read() is None
    assert len(caplog.records) == 1  # however often it is asked
    assert reader.skipped == []  # how much is missing is not known yet
    shelf.segment(3)
    assert drain(reader) == shelf.rows[10:]
    assert [(gap.first, gap.next) for gap in reader.skipped] == [(5, 10)]


def test_a_payload_that_looks_like_a_group_is_none(tmp_path: Path) -> None:
    """A group with a file of this log as payload is damaged."""
    shelf = Shelf(tmp_path)
    path = shelf.begin()
    shelf.add(2)
    shelf.end()
    copy = path.read_bytes()
    path.unlink()
    shelf = Shelf(tmp_path)
    shelf.begin()
    shelf.add(2)
    shelf.add(1, payload=copy + copy)
    shelf.add(1)
    shelf.end()
    flip(path, shelf.positions[1] + 100)
    reader = Reader(tmp_path, 0)
    assert drain(reader) == [shelf.rows[0], shelf.rows[1], shelf.rows[3]]
    assert [(gap.first, gap.next) for gap in reader.skipped] == [(2, 3)]


def test_a_sealed_file_with_other_rows_is_damage(shelf: Shelf) -> None:
    """Every checksum of Parquet is valid, but the rows differ from the sealed ones."""
    path = seal(shelf.segment(5))
    assert path is not None
    table = pq.read_table(path)
    table = table.set_column(6, "payload", pc.binary_replace_slice(table["payload"], 0, 1, b"X"))
    pq.write_table(table, path, write_page_checksum=True)
    assert pq.read_metadata(path).metadata[b"polycast"]
    reader = Reader(shelf.folder, 0)
    assert reader.read() is None
    topics = Reader(shelf.folder, 0, ["topic"]).read()
    assert topics is not None
    assert topics["topic"].to_pylist() == table["topic"].to_pylist()


def test_a_hot_file_beside_its_sealed_twin(shelf: Shelf) -> None:
    """A stop during sealing leaves both files."""
    path = shelf.segment(5)
    data = path.read_bytes()
    sealed = seal(path)
    path.write_bytes(data)
    assert segments(shelf.folder) == [Segment(0, sealed or path)]
    assert drain(Reader(shelf.folder, 0)) == shelf.rows
