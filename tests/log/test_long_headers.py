"""A group whose header is long: each batch with an id is in it, and publishers choose the ids."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from polycast.log.files.folder import segments
from polycast.log.files.format import StreamPosition
from polycast.log.files.hot import HotReader
from polycast.log.log import Log
from polycast.log.settings import LogSettings
from polycast.model import BatchKey, Burst, Format

GUARD_SECONDS = 60


class OpenLog:
    def __init__(self, folder: Path, gather_seconds: float = 0.0, **more: Any) -> None:
        settings = LogSettings(data=str(folder), seal=False, keep_free="0", gather_seconds=gather_seconds)
        self.log = Log.open(settings, 100, **more)
        self._posted: SimpleQueue[Any] = SimpleQueue()

    def append(self, batch: BatchKey | None = None) -> None:
        burst = Burst.of("hermod", [(b"a", b"x", Format.BYTES)])
        burst.offset, burst.sequences = self.log.next, [self.log.next]
        self.log.append([burst], "source", 1, batch, 1)

    def start(self) -> None:
        self.log.start(self._posted.put)

    def wait(self) -> None:
        while self.log.durable_next < self.log.next:
            self._posted.get(timeout=GUARD_SECONDS)()


@pytest.mark.parametrize("batches", [45, 700], ids=["70 KB", "1 MB"])
@pytest.mark.parametrize("before", [0, 3])
def test_a_long_header_does_not_end_a_segment(tmp_path: Path, batches: int, before: int) -> None:
    opened = OpenLog(tmp_path)
    if before:
        opened.start()
        for _ in range(before):
            opened.append()
        opened.wait()
    for number in range(batches):
        opened.append(BatchKey("owner", f"{number:04}" + "\x01" * 252))
    if not before:
        opened.start()  # what was put before is one group
    opened.wait()
    opened.append()
    opened.wait()
    [segment] = segments(opened.log.folder)
    reader = HotReader(segment.path)
    found = list(reader.headers())
    assert found[-1][1].next == before + batches + 1
    assert all(reader.begins_at(position, header.first) for position, header in found)
    reader.close()
    opened.log.close([], 0)


def test_hurry_during_an_atomic_append_counts_for_its_entries(tmp_path: Path) -> None:
    """A node acknowledges what it applies before the entries of that message are put together."""
    opened = OpenLog(tmp_path, gather_seconds=3600.0, exact=True, seed="00000000000000aa")
    opened.log.join_stream(StreamPosition("T", chain="s"))
    opened.start()
    opened.log.begin_together()
    opened.append()
    opened.log.hurry()
    opened.log.end_together(lambda: StreamPosition("T", sequence=1, chain="s"))
    opened.wait()
    opened.log.close([], 0)
