"""The room that the log leaves free on its file system (`log.keep_free`), whatever else fills that.

The newest segments stay, up to a quarter of that room: another account that fills the disk cannot erase the whole
log, and so little cannot fill a disk that had the room. A file system of unknown size keeps everything.

It holds from the moment when less than that is free until there are two segments more: where the log itself fills
the disk, old segments go and new ones come all the time, and that is one state, not many.
"""

from __future__ import annotations

import logging
from pathlib import Path

from polycast.declare import size_text
from polycast.errors import StartError
from polycast.log.files.disk import Disk
from polycast.log.settings import AUTO, LogSettings, keep_free_bytes

log = logging.getLogger("polycast.log")

UNFREED_SECONDS = 30.0
"""How long removed bytes count as free that the file system does not report as free yet. A reader holds the file
open, or the file system takes its time; without this, the next round would remove more, up to all of the log. It
ends where less than half of the floor is free: then there is no time to wait for anybody."""


STAYS_SHARE = 4


class FreeSpace:
    def __init__(self, folder: Path, settings: LogSettings, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._wanted = settings.keep_free
        self._check()
        self._margin = 2 * settings.segment_bytes
        self._unfreed: list[tuple[float, int]] = []
        """Until when bytes count as free, and how many."""
        self.warning = ""
        """What the operator should know, as long as it holds."""

    def missing(self, now: float) -> int:
        """How many bytes must go."""
        floor = self._bytes()
        if not floor:
            return 0
        free = self._disk.room(self._folder)
        self._note(free, floor)
        self._unfreed = [(until, size) for until, size in self._unfreed if until > now and free >= floor // 2]
        return max(0, floor - free - sum(size for _, size in self._unfreed))

    def _check(self) -> None:
        """StartError: the file system does not have as much."""
        floor, capacity = self._bytes(), self._disk.capacity(self._folder)
        if floor and floor >= capacity:
            found = f"log.keep_free is {size_text(floor)}, and the file system of {self._folder} has"
            raise StartError(f"{found} {size_text(capacity)}", "keep less free, or 'auto'")

    @property
    def stays(self) -> int:
        """How many bytes of the log are never removed for room."""
        return self._bytes() // STAYS_SHARE

    def room(self) -> int:
        return self._disk.room(self._folder)

    def removed(self, size: int, room_before: int, now: float) -> None:
        """A file of that size was removed, when there was so much room."""
        if self.room() - room_before < size // 2:
            self._unfreed.append((now + UNFREED_SECONDS, size))

    def __str__(self) -> str:
        floor = self._bytes()
        share = ", 10 % of the file system or 2 GiB" if self._wanted == AUTO else ""
        return f"less than {size_text(floor)} are free (log.keep_free{share})" if floor else ""

    def _bytes(self) -> int:
        capacity = self._disk.capacity(self._folder)
        return keep_free_bytes(self._wanted, capacity) if capacity else 0

    def _note(self, free: int, floor: int) -> None:
        if free >= floor + self._margin:
            if self.warning:
                log.info("%s: %s are free again, more than log.keep_free", self._folder, size_text(free))
            self.warning = ""
        elif free < floor or self.warning:
            began = not self.warning
            self.warning = (
                f"{size_text(free)} are free and log.keep_free is {size_text(floor)}: "
                f"the oldest segments of the log are removed, down to {size_text(floor // STAYS_SHARE)}"
            )
            if began:
                log.warning(
                    "%s: %s; make room, or limit the log with log.retain_bytes", self._folder, self.warning
                )
