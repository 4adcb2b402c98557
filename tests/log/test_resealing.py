"""Salvage of damaged sealed segments, and what readers tell of the rows that are missing."""

from __future__ import annotations

import errno
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from log.housekeeping_rig import HousekeepingRig
from log.log_builder import LogBuilder, findings, flip, stop, time_of
from log.log_rig import FaultyDisk
from polycast.log.files.format import NOT_STORED, Gap
from polycast.log.files.quarantine import read_lost
from polycast.log.read.catalog import LogCatalog
from polycast.log.read.query import RowFilter, query_rows, to_ranges
from polycast.log.read.reader import Reader
from polycast.log.read.seek import find_time
from polycast.log.settings import LogSettings
from polycast.log.upkeep import sealing
from polycast.log.upkeep.resealing import reseal
from polycast.log.upkeep.sealing import seal

LOST = "lost to damage, see quarantine/00000000000000000000.parquet"


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    """A sealed segment with three row groups, and a hot one."""
    builder = LogBuilder(tmp_path)
    seal(builder.segment(10, 10, 10))
    builder.segment(5)
    stop(builder)
    return builder


def damage(path: Path, number: int, column: int = 6) -> None:
    """Of a row group, in a column without a dictionary; by default the payloads."""
    found = pq.read_metadata(path).row_group(number).column(column)
    flip(path, found.data_page_offset + found.total_compressed_size - 1)


def sealed(builder: LogBuilder) -> Path:
    return builder.folder / "00000000000000000000.parquet"


def read_pieces(folder: Path, stop: int | None = None) -> tuple[list[list[int]], list[Gap]]:
    """The offsets of each batch, and all that is missing."""
    reader = Reader(folder, 0)
    try:
        pieces = [batch["offset"].to_pylist() for batch in iter(lambda: reader.read(stop), None)]
        reader.finish(stop or 10**9)
        return pieces, reader.skipped
    finally:
        reader.close()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_readable_row_groups_stay(builder: LogBuilder, number: int) -> None:
    path = sealed(builder)
    damage(path, number)
    before = path.read_bytes()
    first = 10 * number
    assert reseal(path, 30) == [Gap(first, first + 10, LOST)]
    assert (builder.folder / "quarantine" / path.name).read_bytes() == before
    assert read_lost(builder.folder) == [Gap(first, first + 10, LOST)]
    expected = [offset for offset in range(35) if not first <= offset < first + 10]
    pieces, skipped = read_pieces(builder.folder)
    assert (list(chain(*pieces)), skipped) == (expected, [Gap(first, first + 10, LOST)])
    assert pq.read_table(path)["offset"].to_pylist() == expected[:-5], "other programs read it again"
    assert findings(builder.folder) == []
    assert reseal(path, 30) == []


def test_a_file_without_a_footer_goes_to_the_quarantine(builder: LogBuilder) -> None:
    path = sealed(builder)
    path.write_bytes(path.read_bytes()[:-20])
    assert reseal(path, 30) == [Gap(0, 30, LOST)]
    assert not path.exists()
    assert read_pieces(builder.folder) == ([[30, 31, 32, 33, 34]], [Gap(0, 30, LOST)])


def test_all_row_groups_are_damaged(builder: LogBuilder) -> None:
    path = sealed(builder)
    for number in range(3):
        damage(path, number)
    assert len(reseal(path, 30)) == 3
    assert not path.exists()
    assert [(gap.first, gap.next) for gap in read_pieces(builder.folder)[1]] == [(0, 30)]


@pytest.mark.parametrize("action", ["write", "sync", "rename"])
def test_a_full_disk_leaves_the_segment(builder: LogBuilder, action: str) -> None:
    path = sealed(builder)
    damage(path, 1)
    before = path.read_bytes()
    disk = FaultyDisk()
    disk.fail(action, ".parquet", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        reseal(path, 30, disk)
    assert path.read_bytes() == before
    assert not list(builder.folder.glob("*.tmp"))
    disk.heal()
    assert reseal(path, 30, disk) == [Gap(10, 20, LOST)]
    assert len(list((builder.folder / "quarantine").glob("*.parquet"))) == 1


def test_housekeeping_salvages_what_a_reader_met(tmp_path: Path) -> None:
    rig = HousekeepingRig(tmp_path, LogSettings(seal_share=1.0, keep_free="0"))
    rig.builder.segment(10, 10, 10)
    rig.builder.segment(5)
    rig.housekeeping.round()
    assert rig.housekeeping.warnings() == []
    damage(sealed(rig.builder), 1)
    _, [gap] = read_pieces(tmp_path)
    rig.housekeeping.note_damage(gap)
    rig.housekeeping.round()
    assert rig.housekeeping.segments_quarantined == 1
    assert rig.housekeeping.inventory.messages_unreadable == 10
    assert [gap.reason for gap in rig.housekeeping.inventory.gaps] == [LOST]
    [warning] = rig.housekeeping.warnings()
    assert warning.startswith("damage was found in the log: 10 messages of the log are lost")
    rig.housekeeping.round()
    assert rig.housekeeping.segments_quarantined == 1


def test_housekeeping_finds_an_unreadable_footer_by_itself(tmp_path: Path) -> None:
    rig = HousekeepingRig(tmp_path, LogSettings(seal_share=1.0, keep_free="0"))
    rig.builder.segment(10)
    rig.builder.segment(5)
    rig.housekeeping.round()
    sealed(rig.builder).write_bytes(b"no Parquet")
    again = HousekeepingRig(tmp_path, LogSettings(seal_share=1.0, keep_free="0"))
    again.closed = 15
    again.housekeeping.round()
    assert again.housekeeping.segments_quarantined == 1
    assert again.housekeeping.inventory.messages_unreadable == 10


def test_damage_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    rig = HousekeepingRig(tmp_path, LogSettings(seal_share=1.0, keep_free="0"))
    rig.builder.segment(10)
    rig.housekeeping.round()
    rig.housekeeping.note_damage(Gap(3, 5, "a bad cable"))
    rig.housekeeping.round()
    assert (rig.housekeeping.segments_quarantined, rig.housekeeping.warnings()) == (0, [])


# -- what readers report -----------------------------------------------------------------------------------


def test_messages_that_were_not_stored_are_reported_in_their_place(tmp_path: Path) -> None:
    """Inside one row group as well; reserved offsets are no loss."""
    builder = LogBuilder(tmp_path)
    path = builder.begin()
    for reason in ("unclean stop", NOT_STORED + "disk full"):
        builder.add(2)
        builder.skip(3, reason)
    builder.add(2)
    builder.end()
    expected = [Gap(7, 10, NOT_STORED + "disk full")]
    assert read_pieces(tmp_path) == ([[0, 1], [5, 6], [10, 11]], expected)
    seal(path)
    assert read_pieces(tmp_path) == ([[0, 1, 5, 6], [10, 11]], expected)
    assert read_pieces(tmp_path, 6) == ([[0, 1, 5]], [])


def test_a_query_reports_damage_at_the_end_of_the_log(builder: LogBuilder) -> None:
    [last] = builder.folder.glob("*30.arrows")
    last.write_bytes(b"no segment")
    catalog, reported = LogCatalog(builder.folder), list[Gap]()
    ranges = to_ranges(catalog.parts(0, 35), RowFilter(), 0, 35)
    rows = sum(
        batch.num_rows for batch in query_rows(builder.folder, ranges, RowFilter(), ["offset"], reported.append)
    )
    assert (rows, [(gap.first, gap.next, gap.damaged) for gap in reported]) == (30, [(30, 35, True)])


def test_a_start_at_a_time_in_damaged_messages_comes_before_them(builder: LogBuilder) -> None:
    damage(sealed(builder), 1, column=3)
    assert find_time(builder.folder, time_of(15) / 1e6) == 10
    assert find_time(builder.folder, time_of(9) / 1e6) == 9
    assert find_time(builder.folder, time_of(21) / 1e6) == 21
