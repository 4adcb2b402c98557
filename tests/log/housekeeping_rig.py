"""A log whose housekeeping runs on request only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from log.log_builder import SEED, LogBuilder, to_rows
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import Segment, segments
from polycast.log.files.state import LogState, write_state
from polycast.log.read.reader import Reader
from polycast.log.settings import LogSettings
from polycast.log.upkeep.housekeeping import Housekeeping


class HousekeepingRig:
    """A log with housekeeping that runs a round on request."""

    def __init__(
        self, folder: Path, settings: LogSettings, disk: Disk = DISK, written: Callable[[], int] = lambda: 0
    ) -> None:
        write_state(folder, LogState(seed=f"{SEED:016x}", clean=False, next=0, reserved=0), DISK)
        self.builder = LogBuilder(folder)
        self.closed: int | None = None
        self.rolls = 0
        self.snapshots = 0
        self.summarized: int | None = None
        self.waited: list[bool] = []
        """For each call for snapshots: whether the last segment would have to wait."""
        self.housekeeping = Housekeeping(
            folder, settings, lambda: self.until, self._roll, self._snapshot, disk, bytes_written=written
        )

    @property
    def until(self) -> int:
        return self.builder.next if self.closed is None else self.closed

    def _roll(self) -> None:
        self.rolls += 1
        self.builder.end()
        self.closed = None

    def _snapshot(self, waits: Callable[[Segment], bool]) -> int | None:
        self.snapshots += 1
        self.waited += map(waits, segments(self.builder.folder)[-1:])
        return self.summarized

    def names(self) -> list[str]:
        return [segment.path.name.lstrip("0") for segment in segments(self.builder.folder)]

    def offsets(self) -> list[int]:
        reader = Reader(self.builder.folder, 0, ["offset"])
        found = []
        while (batch := reader.read()) is not None:
            found += [row["offset"] for row in to_rows([batch])]
        reader.close()
        return found
