"""`log.keep_free`: the oldest segments are removed while too little is free on the file system."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from log.housekeeping_rig import HousekeepingRig
from log.log_rig import open_rig
from polycast.errors import StartError, UsageError
from polycast.log.files.disk import Disk
from polycast.log.files.folder import Segment, segment_size, segments
from polycast.log.settings import LogSettings, keep_free_bytes
from polycast.log.upkeep.free_space import UNFREED_SECONDS
from polycast.log.upkeep.surge import SURGE_BYTES
from polycast.server import load
from polycast.text import parse_size, size_text

PAGE = 4096
"""The size of a segment of five messages."""
MIB = 2**20
GIB = 2**30


class Volume(Disk):
    """A simulated file system with a log and other files."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.others = 0
        self.lazy = False
        """Whether removed files keep their space: a reader has them open."""
        self._most = 0

    def capacity(self, folder: Path) -> int:
        return self.size

    def free_bytes(self, folder: Path) -> int:
        used = sum(map(segment_size, segments(self.folder)))
        self._most = max(self._most, used)
        return self.size - self.others - (self._most if self.lazy else used)


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path, 20 * PAGE)


@pytest.fixture
def rig(tmp_path: Path, volume: Volume) -> HousekeepingRig:
    """Ten segments on a file system with space for ten more, of which six are kept free."""
    settings = LogSettings(seal=False, keep_free=str(6 * PAGE), segment_bytes=PAGE)
    opened = HousekeepingRig(tmp_path, settings, volume)
    for _ in range(10):
        opened.builder.segment(5)
    return opened


def test_no_segment_is_removed_while_space_is_free(rig: HousekeepingRig) -> None:
    rig.housekeeping.round()
    assert len(rig.names()) == 10
    assert (rig.housekeeping.removed_for_room, rig.housekeeping.warnings()) == (0, [])


def test_the_oldest_segments_are_removed_until_space_is_free(
    rig: HousekeepingRig, volume: Volume, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    volume.others = 7 * PAGE
    rig.housekeeping.round()
    assert rig.names() == [
        "15.arrows",
        "20.arrows",
        "25.arrows",
        "30.arrows",
        "35.arrows",
        "40.arrows",
        "45.arrows",
    ]
    assert (
        rig.housekeeping.segments_removed,
        rig.housekeeping.removed_for_room,
        rig.housekeeping.messages_removed,
    ) == (
        3,
        3,
        15,
    )
    assert "offsets 5 to 9, 5 messages, 4,096 bytes (log.keep_free)" in caplog.text
    assert rig.offsets() == list(range(15, 50))


@pytest.mark.parametrize(
    ("keep_free", "left"), [(4, ["45.arrows"]), (12, ["35.arrows", "40.arrows", "45.arrows"])]
)
def test_a_quarter_of_the_limit_stays_on_a_full_disk(
    keep_free: int, left: list[str], tmp_path: Path, volume: Volume
) -> None:
    """Other files on the disk cannot erase the whole log."""
    settings = LogSettings(seal=False, keep_free=str(keep_free * PAGE), segment_bytes=PAGE)
    rig = HousekeepingRig(tmp_path, settings, volume)
    for _ in range(10):
        rig.builder.segment(5)
    rig.closed = 45
    for taken in range(10, 20):
        volume.others = taken * PAGE
        rig.housekeeping.round()
    assert rig.names() == left
    assert rig.housekeeping.warnings()


def test_a_limit_above_the_file_system_is_an_error(tmp_path: Path, volume: Volume) -> None:
    with pytest.raises(StartError, match=r"log\.keep_free is 80\.0 KiB, and .* has 80\.0 KiB"):
        HousekeepingRig(tmp_path, LogSettings(keep_free=str(20 * PAGE)), volume)


def test_nothing_is_removed_on_a_file_system_of_unknown_size(tmp_path: Path, volume: Volume) -> None:
    volume.size = 0
    rig = HousekeepingRig(tmp_path, LogSettings(seal=False, keep_free="1GiB", segment_bytes=PAGE), volume)
    for _ in range(3):
        rig.builder.segment(5)
    rig.closed = 10
    rig.housekeeping.round()
    assert len(rig.names()) == 3


def test_low_space_is_logged_at_its_start_and_end(
    rig: HousekeepingRig, volume: Volume, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    volume.others = 5 * PAGE
    rig.housekeeping.round()
    announced = (
        "20.0 KiB are free and log.keep_free is 24.0 KiB: "
        "the oldest segments of the log are removed, down to 6.0 KiB"
    )
    assert rig.housekeeping.warnings() == [announced]
    rig.housekeeping.round()
    assert rig.housekeeping.warnings() == [announced.replace("20.0 KiB", "24.0 KiB")], (
        "there is room, and just so much"
    )
    assert caplog.text.count("make room, or limit the log with log.retain_bytes") == 1
    volume.others = 0
    rig.housekeeping.round()
    assert rig.housekeeping.warnings() == []
    assert "44.0 KiB are free again" in caplog.text


def test_open_removed_files_count_as_free(
    rig: HousekeepingRig, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The space is free when the last reader closes the file; until then no other segment is removed."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    volume.free_bytes(volume.folder)
    volume.lazy = True
    volume.others = 7 * PAGE
    for _ in range(5):
        rig.housekeeping.round()
    assert len(rig.names()) == 7
    now += UNFREED_SECONDS + 1
    for _ in range(5):
        rig.housekeeping.round()
    assert len(rig.names()) == 4


def test_half_of_the_limit_is_freed_despite_open_files(rig: HousekeepingRig, volume: Volume) -> None:
    volume.free_bytes(volume.folder)
    volume.lazy = True
    volume.others = 7 * PAGE
    rig.housekeeping.round()
    assert len(rig.names()) == 7
    volume.others = 8 * PAGE
    rig.housekeeping.round()
    assert len(rig.names()) == 3, "two pages are free, and that is less than three"


def test_space_is_freed_while_a_segment_is_sealed(
    tmp_path: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment being sealed stays, and so do later ones."""
    settings = LogSettings(keep_free=str(6 * PAGE), segment_bytes=PAGE)
    rig = HousekeepingRig(tmp_path, settings, volume)
    for _ in range(4):
        rig.builder.segment(5)
    rig.closed = 10
    rig.housekeeping.round()
    assert rig.names() == [".parquet", "5.parquet", "10.arrows", "15.arrows"]
    monkeypatch.setattr(rig.housekeeping, "_retained_at", -1e9)
    volume.others = 19 * PAGE
    rig.closed = 20
    rig.housekeeping._pause(0.0, Segment(10, tmp_path))
    assert rig.names() == ["10.arrows", "15.arrows"]


def test_snapshots_do_not_wait_while_space_is_short(tmp_path: Path, volume: Volume) -> None:
    """A segment that is removed for space takes its batch ids along, unless a snapshot has them."""
    settings = LogSettings(seal=False, keep_free=str(6 * PAGE), segment_bytes=PAGE)
    rig = HousekeepingRig(tmp_path, settings, volume, written=lambda: SURGE_BYTES)
    for _ in range(10):
        rig.builder.segment(5)
    volume.others = 5 * PAGE
    for waits in (True, False):
        rig.waited.clear()
        rig.housekeeping._surge._bytes = 0
        rig.housekeeping._surge._at -= 0.9
        rig.housekeeping.round()
        assert rig.waited == [waits]
    assert rig.names()[0] == "5.arrows"


def test_space_is_freed_between_two_snapshots(
    rig: HousekeepingRig, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments behind the last snapshot stay."""
    rig.summarized = 25
    rig.housekeeping.round()
    monkeypatch.setattr(rig.housekeeping, "_retained_at", -1e9)
    volume.others = 19 * PAGE
    rig.housekeeping._waits_for_snapshot(segments(volume.folder)[5])
    assert rig.names()[0] == "25.arrows"


def test_auto_is_a_limited_share_of_the_disk(tmp_path: Path) -> None:
    assert keep_free_bytes("auto", 10 * GIB) == GIB
    assert keep_free_bytes("auto", 1000 * GIB) == 2 * GIB
    assert keep_free_bytes("0", 1000 * GIB) == 0
    assert keep_free_bytes("3 GiB", 1) == 3 * GIB


def test_the_limit_is_on_by_default(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 20 * PAGE)
    rig = HousekeepingRig(tmp_path, replace(LogSettings(), seal=False), volume)
    for _ in range(10):
        rig.builder.segment(5)
    volume.others = 9 * PAGE
    rig.housekeeping.round()
    assert len(rig.names()) == 9


def test_the_limits_are_logged_at_start(tmp_path: Path) -> None:
    with open_rig(tmp_path / "a", keep_free="5MiB", retain_bytes=MIB, retain_seconds=7200.0) as rig:
        assert rig.log.housekeeping.describe() == (
            "the oldest segments are removed when less than 5.0 MiB are free (log.keep_free), or the log has more "
            "than 1.0 MiB (log.retain_bytes), or messages are older than 7,200 s (log.retain_seconds)"
        )
    with open_rig(tmp_path / "b", keep_free="0") as rig:
        assert rig.log.housekeeping.describe() == "no segment is ever removed"


# -- sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", MIB),
        ("1MiB", MIB),
        ("1.5 GiB", 3 * GIB // 2),
        ("2g", 2 * GIB),
        ("10KB", 10 * 1024),
        ("7 B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("size", "text"), [(0, "0 bytes"), (1023, "1,023 bytes"), (3 * GIB // 2, "1.5 GiB")])
def test_sizes_for_people(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("value", ["much", "-1", "10%", "0.1", -1, 1.5, True, ""])
def test_invalid_sizes(value: object) -> None:
    with pytest.raises(UsageError, match=r"log\.keep_free = "):
        load(flags=[("log.keep_free", value)])


@pytest.mark.parametrize("value", ["auto", 0, 1 << 30, "2GiB"])
def test_valid_sizes(value: object) -> None:
    assert load(flags=[("log.keep_free", value)]).settings.log.keep_free == str(value)
