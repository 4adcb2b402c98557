"""Segments that are gone, and losses beside each other: what the log records, and what readers report."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from log.housekeeping_rig import HousekeepingRig
from log.log_builder import LogBuilder, findings, flip
from polycast.cli.log.info import describe
from polycast.log import dataset
from polycast.log.files.format import REMOVED, Gap
from polycast.log.files.quarantine import read_lost
from polycast.log.read.gaps import covering, outside
from polycast.log.read.reader import Reader
from polycast.log.repair.salvage import salvage
from polycast.log.settings import LogSettings
from polycast.log.upkeep import sealing

QUIET = LogSettings(seal_share=1.0, keep_free="0")
GONE = "lost to damage, see quarantine/{:020}.missing.lost.json: no segment holds them"


@pytest.fixture
def rig(tmp_path: Path) -> HousekeepingRig:
    """Four sealed segments of ten messages, and a hot one of five."""
    rig = HousekeepingRig(tmp_path, QUIET)
    for _ in range(4):
        rig.builder.segment(10)
    rig.builder.segment(5)
    rig.closed = 40
    rig.housekeeping.round()
    assert rig.names() == [".parquet", "10.parquet", "20.parquet", "30.parquet", "40.arrows"]
    return rig


def restart(rig: HousekeepingRig, settings: LogSettings = QUIET) -> HousekeepingRig:
    again = HousekeepingRig(rig.builder.folder, settings)
    again.closed = 40
    again.housekeeping.round()
    return again


def path_of(builder: LogBuilder, first: int) -> Path:
    return builder.folder / f"{first:020}.parquet"


def recorded(rig: HousekeepingRig) -> list[tuple[int, int]]:
    return [(gap.first, gap.next) for gap in rig.housekeeping.inventory.gaps]


def skipped(folder: Path) -> list[Gap]:
    reader = Reader(folder, 0)
    try:
        while reader.read() is not None:
            pass
        return reader.skipped
    finally:
        reader.close()


def test_a_segment_that_is_gone_is_a_recorded_gap(rig: HousekeepingRig, caplog: pytest.LogCaptureFixture) -> None:
    path_of(rig.builder, 20).unlink()
    folder = rig.builder.folder
    assert [gap["reason"] for gap in describe(folder)["gaps"]] == ["no segment holds them"]
    assert findings(folder)
    again = restart(rig)
    inventory = again.housekeeping.inventory
    assert inventory.gaps == [Gap(20, 30, GONE.format(20))]
    assert inventory.messages_unreadable == 10
    [warning] = again.housekeeping.warnings()
    assert warning.startswith("damage was found in the log: 10 messages of the log are lost")
    assert "offsets from 20 up to 30 are lost: no segment holds them" in caplog.text
    assert skipped(folder) == [Gap(20, 30, GONE.format(20))]
    assert [(gap["first"], gap["next"]) for gap in describe(folder)["gaps"]] == [(20, 30)]
    assert findings(folder) == []
    later = restart(rig)
    assert (recorded(later), later.housekeeping.warnings()) == ([(20, 30)], [])


def test_neighbouring_segments_that_are_gone_one_after_the_other(rig: HousekeepingRig) -> None:
    path_of(rig.builder, 20).unlink()
    assert recorded(restart(rig)) == [(20, 30)]
    path_of(rig.builder, 10).unlink()
    again = restart(rig)
    assert recorded(again) == [(10, 20), (20, 30)]
    assert again.housekeeping.inventory.messages_unreadable == 20
    assert findings(rig.builder.folder) == []


def test_a_segment_that_goes_while_the_broker_runs(rig: HousekeepingRig) -> None:
    path_of(rig.builder, 20).unlink()
    rig.housekeeping.round()
    assert recorded(rig) == [(20, 30)]


def test_gaps_that_a_segment_records_are_no_holes(tmp_path: Path) -> None:
    """Between segments as well, and behind a segment without messages."""
    rig = HousekeepingRig(tmp_path, LogSettings(seal=False, keep_free="0"))
    rig.builder.segment(5)
    rig.builder.segment()
    rig.builder.skip(10)
    rig.builder.segment(5)
    rig.builder.skip(10)
    rig.builder.begin()  # the group that records the gap is not written yet
    rig.closed = 20
    rig.housekeeping.round()
    assert recorded(rig) == [(5, 15)]
    assert read_lost(tmp_path) == []
    rig.builder.add(1)
    rig.housekeeping.round()
    assert recorded(rig) == [(5, 15), (20, 30)]
    assert read_lost(tmp_path) == []


def test_a_damaged_hot_segment_before_the_hole_is_salvaged_first(tmp_path: Path) -> None:
    """Its headers end at the damage, and groups behind it are not lost."""
    rig = HousekeepingRig(tmp_path, LogSettings(seal=False, keep_free="0"))
    path = rig.builder.segment(5, 5, 5)
    flip(path, rig.builder.positions[1])
    rig.builder.segment(5)
    rig.housekeeping.round()
    assert recorded(rig) == [(5, 10)]
    assert rig.offsets() == [*range(5), *range(10, 20)]


def test_a_dataset_of_a_log_with_losses_says_so(rig: HousekeepingRig, caplog: pytest.LogCaptureFixture) -> None:
    """A dataset has rows only: the losses are in the log of the program that reads it."""
    assert dataset(rig.builder.folder).count_rows() == 45
    assert caplog.text == ""
    path_of(rig.builder, 20).unlink()
    restart(rig)
    caplog.clear()
    assert dataset(rig.builder.folder).count_rows() == 35
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "10 messages of the log are lost; polycast log info lists their offsets" in record.getMessage()


# -- losses beside each other ------------------------------------------------------------------------------


def test_neighbouring_losses_are_counted_once(rig: HousekeepingRig) -> None:
    for first in (20, 10):
        path_of(rig.builder, first).write_bytes(b"no Parquet")
        again = restart(rig)
    assert recorded(again) == [(10, 20), (20, 30)]
    assert again.housekeeping.inventory.messages_unreadable == 20
    assert [(gap.first, gap.next) for gap in skipped(rig.builder.folder)] == [(10, 30)]
    assert skipped(rig.builder.folder)[0].recorded
    assert findings(rig.builder.folder) == []


def test_a_loss_ends_where_a_recorded_gap_begins(tmp_path: Path) -> None:
    """The offsets that an unclean stop skipped are not lost."""
    rig = HousekeepingRig(tmp_path, QUIET)
    rig.builder.segment(10)
    rig.builder.segment(10)
    rig.builder.skip(1000)
    rig.builder.segment(5)
    rig.builder.segment(5)
    rig.closed = rig.builder.next - 5
    rig.housekeeping.round()
    path_of(rig.builder, 10).write_bytes(b"no Parquet")
    again = HousekeepingRig(tmp_path, QUIET)
    again.closed = rig.closed
    again.housekeeping.round()
    assert recorded(again) == [(10, 20), (20, 1020)]
    assert again.housekeeping.inventory.messages_unreadable == 10


def test_a_footer_that_is_lost_after_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    rig = HousekeepingRig(tmp_path, QUIET)
    rig.builder.segment(10, 10, 10)
    rig.builder.segment(5)
    rig.closed = 30
    rig.housekeeping.round()
    path = path_of(rig.builder, 0)
    column = pq.read_metadata(path).row_group(1).column(6)
    flip(path, column.data_page_offset + column.total_compressed_size - 1)
    [gap] = skipped(tmp_path)
    rig.housekeeping.note_damage(gap)
    rig.housekeeping.round()
    assert recorded(rig) == [(10, 20)]
    path.write_bytes(b"no Parquet")
    again = HousekeepingRig(tmp_path, QUIET)
    again.closed = 30
    again.housekeeping.round()
    assert recorded(again) == [(0, 10), (10, 20), (20, 30)]
    assert again.housekeeping.inventory.messages_unreadable == 30


def test_a_hot_segment_beside_a_lost_one(tmp_path: Path) -> None:
    rig = HousekeepingRig(tmp_path, LogSettings(seal=False, keep_free="0"))
    paths = [rig.builder.segment(10) for _ in range(3)]
    for path in (paths[1], paths[0]):
        flip(path, len(rig.builder.layout.head) + 900)
        salvage(path)
    assert sorted((gap.first, gap.next) for gap in read_lost(tmp_path)) == [(0, 10), (10, 20)]


def test_overlapping_records_of_earlier_versions_are_counted_once(rig: HousekeepingRig) -> None:
    quarantine = rig.builder.folder / "quarantine"
    quarantine.mkdir()
    for name, first in (("a", 10), ("b", 20)):
        (quarantine / f"{name}.parquet.lost.json").write_text(
            f'[{{"first": {first}, "next": 30, "reason": "lost to damage, see quarantine/{name}.parquet"}}]'
        )
    assert restart(rig).housekeeping.inventory.messages_unreadable == 20


def test_gaps_beside_each_other_cover_a_range_together() -> None:
    gaps = [Gap(10, 20, "unclean stop"), Gap(0, 10, "unclean stop"), Gap(20, 30, REMOVED)]
    assert covering(gaps, 0, 20) == Gap(0, 10, "unclean stop")
    assert covering(gaps, 5, 25) == Gap(20, 30, REMOVED), "messages are missing"
    assert covering(gaps, 5, 31) is None
    assert covering([], 5, 6) is None


def test_what_is_left_of_a_gap_outside_of_others() -> None:
    others = [Gap(30, 40, "c"), Gap(5, 12, "a"), Gap(8, 20, "b")]
    assert outside(Gap(0, 35, "x"), others) == [Gap(0, 5, "x"), Gap(20, 30, "x")]
    assert outside(Gap(10, 15, "x"), others) == []
    assert outside(Gap(40, 50, "x"), others) == [Gap(40, 50, "x")]
