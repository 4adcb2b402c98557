"""Readers, the writer and housekeeping at the same time."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kit.wire import GUARD_SECONDS
from log.log_builder import LogBuilder
from polycast.log.files.format import REMOVED, Gap
from polycast.log.read.reader import Reader
from polycast.log.settings import LogSettings
from polycast.log.upkeep.housekeeping import Housekeeping

GROUPS = 400
EACH = 3


class Follower(threading.Thread):
    """Reads from the beginning until an offset, over and over if it is quick."""

    def __init__(self, folder: Path, until: int) -> None:
        super().__init__()
        self._folder = folder
        self._until = until
        self.ended = threading.Event()
        self.offsets: list[list[int]] = []
        self.skipped: list[Gap] = []

    def run(self) -> None:
        while not self.ended.is_set():
            reader = Reader(self._folder, 0, ["offset"])
            found: list[int] = []
            while reader.offset < self._until:
                batch = reader.read(rows=50)
                if batch is None and self.ended.is_set() and (batch := reader.read(rows=50)) is None:
                    break
                found += batch["offset"].to_pylist() if batch is not None else []
            reader.close()
            self.offsets.append(found)
            self.skipped += reader.skipped


@pytest.mark.slow
@pytest.mark.parametrize("retain_bytes", [0, 30_000])
def test_what_is_read_is_what_was_written(tmp_path: Path, retain_bytes: int) -> None:
    builder = LogBuilder(tmp_path)
    builder.begin()
    closed = [0]
    settings = replace(LogSettings(), keep_free="0", seal_share=1.0, retain_bytes=retain_bytes)
    keeper = Housekeeping(tmp_path, settings, lambda: closed[0], lambda: None, lambda _: None)
    followers = [Follower(tmp_path, GROUPS * EACH) for _ in range(2)]
    keeper.start()
    for follower in followers:
        follower.start()
    for number in range(GROUPS):
        if number % 4 == 3:
            builder.begin()
            closed[0] = builder.next
            keeper.wake()
        builder.add(EACH)
    builder.end()
    for follower in followers:
        follower.ended.set()
        follower.join(GUARD_SECONDS)
    keeper.stop()
    everything = list(range(GROUPS * EACH))
    for follower in followers:
        assert follower.offsets
        if not retain_bytes:
            assert follower.skipped == []
            assert all(found == everything for found in follower.offsets)
        for found in follower.offsets:
            assert found == sorted(set(found))
            assert found[-1] == everything[-1]
        assert {gap.reason for gap in follower.skipped} <= {REMOVED}
    assert keeper.segments_sealed > 0
