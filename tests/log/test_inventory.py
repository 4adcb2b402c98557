"""What operators see of the log: bytes, oldest message, gaps; and its identity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kit.wire import wait_for
from log.housekeeping_rig import HousekeepingRig
from log.log_builder import BEGAN
from log.log_rig import NOW, open_rig
from polycast.log.settings import LogSettings
from polycast.log.times import to_micros
from polycast.log.upkeep.inventory import Inventory

QUIET = LogSettings(seal_share=1.0, keep_free="0")


def test_space_allocated_ahead_is_no_part_of_the_log(tmp_path: Path) -> None:
    """A hot segment is allocated some MiB ahead. With them, a small limit would remove every closed segment."""
    limit = 1024 * 1024
    with open_rig(tmp_path, segment_bytes=65_536, retain_bytes=limit) as rig:
        rig.fill(30, size=10_000)
        housekeeping = rig.log.housekeeping
        inventory = housekeeping.inventory
        wait_for(lambda: inventory.size > 300_000 and inventory.oldest_micros, "a round")
        allocated = sum(path.stat().st_size for path in rig.folder.glob("*.arrows"))
        assert rig.log.writer.closed > 0
        assert allocated > limit > inventory.size
        assert (inventory.first, inventory.oldest_micros) == (0, to_micros(NOW))
        assert housekeeping.segments_removed == 0


def test_the_first_message_of_a_segment_that_was_empty(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        inventory = rig.log.housekeeping.inventory
        inventory.update(0)
        assert inventory.oldest_micros == 0
        rig.fill(1)
        inventory.update(0)
        assert inventory.oldest_micros == to_micros(NOW)


def test_gaps_are_those_of_all_segments(tmp_path: Path) -> None:
    rig = HousekeepingRig(tmp_path, QUIET)
    for reason in ("a", "b"):
        rig.builder.segment(5)
        rig.builder.skip(10, reason)
        rig.builder.segment(5)
    rig.housekeeping.round()
    inventory = rig.housekeeping.inventory
    assert (len(inventory.gaps), inventory.first, inventory.oldest_micros) == (2, 0, BEGAN)


def test_an_empty_log(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path)
    inventory.update(0)
    assert (inventory.first, inventory.size, inventory.oldest_micros, inventory.gaps) == (None, 0, 0, [])


def test_the_identity_survives_starts_and_the_loss_of_the_state_file(tmp_path: Path) -> None:
    with open_rig(tmp_path / "a") as rig:
        rig.fill(1)
        identity = rig.log.id
    (tmp_path / "a" / "log" / "state.json").unlink()
    with open_rig(tmp_path / "a") as rig:
        assert rig.log.id == identity
    with open_rig(tmp_path / "b") as other:
        assert other.log.id != identity
    assert len(identity) == 16


def test_retention_counts_what_is_written(tmp_path: Path) -> None:
    rig = HousekeepingRig(tmp_path, replace(QUIET, seal=False, retain_bytes=10_000))
    rig.builder.segment(5)
    rig.builder.begin()
    rig.builder.add(5)
    rig.closed = 5
    with next(tmp_path.glob("*5.arrows")).open("r+b") as active:
        active.truncate(4 * 1024 * 1024)
    rig.housekeeping.round()
    assert rig.names() == [".arrows", "5.arrows"]
