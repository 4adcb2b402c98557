"""`polycast log info`: the sizes of segments."""

from __future__ import annotations

from pathlib import Path

from log.log_builder import LogBuilder, flip, stop
from log.log_rig import open_rig
from polycast.cli.log.info import describe
from polycast.log.files.folder import segments
from polycast.log.read.segment_info import read_segment_info
from polycast.log.upkeep.sealing import seal


def test_space_allocated_ahead_does_not_count(tmp_path: Path) -> None:
    """The hot segment of a running broker is allocated some MiB ahead."""
    with open_rig(tmp_path) as rig:
        rig.fill(12)
        [segment] = segments(rig.folder)
        written = rig.log.writer.open_bytes
        assert segment.path.stat().st_size > 1024 * 1024 > written
        assert read_segment_info(segment).size == written
        assert describe(rig.folder)["bytes"] == written
        rig.log.housekeeping.inventory.update(0)
        assert rig.log.housekeeping.inventory.size == written


def test_a_segment_without_messages(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.begin()
    stop(builder)
    assert describe(tmp_path)["bytes"] == len(builder.layout.head)


def test_other_files_count_as_they_are(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    sealed = seal(builder.segment(10))
    damaged = builder.segment(10)
    flip(damaged, builder.positions[0] + 900)
    stop(builder)
    assert sealed
    sizes = [segment["bytes"] for segment in describe(tmp_path)["segments"]]
    assert sizes == [sealed.stat().st_size, damaged.stat().st_size]
