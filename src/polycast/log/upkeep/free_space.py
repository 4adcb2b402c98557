"""Free disk space (`log.keep_free`): the log removes its oldest segments while less is free on its file system.

The newest segments stay, up to a quarter of that space: another account that fills the disk cannot erase the whole
log, and that little cannot fill the disk. On a file system of unknown size nothing is removed.

The warning lasts until two segments more than the limit are free: where the log itself fills the disk, segments
are removed and written all the time.
"""

from __future__ import annotations

import logging
from pathlib import Path

from polycast.errors import StartError
from polycast.log.files.disk import Disk
from polycast.log.settings import AUTO, LogSettings, keep_free_bytes
from polycast.text import size_text

log = logging.getLogger("polycast.log")

UNFREED_SECONDS = 30.0
"""How long removed bytes count as free before the file system reports them: a reader may have the file open.
Without
this, each round would remove more, up to the whole log. Ignored while less than half of the limit is free."""


RETAINED_SHARE = 4


class FreeSpace:
    def __init__(self, folder: Path, settings: LogSettings, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._keep_free = settings.keep_free
        self._check()
        self._margin = 2 * settings.segment_bytes
        self._unfreed: list[tuple[float, int]] = []
        """Removed bytes that are not free yet, and until when they count as free."""
        self.warning = ""
        """For the operator, while space is short."""

    def missing(self, now: float) -> int:
        """The bytes to remove."""
        floor = self._bytes()
        if not floor:
            return 0
        free = self._disk.free_bytes(self._folder)
        self._note(free, floor)
        self._unfreed = [(until, size) for until, size in self._unfreed if until > now and free >= floor // 2]
        return max(0, floor - free - sum(size for _, size in self._unfreed))

    def _check(self) -> None:
        """Raises StartError if the file system is smaller than the limit."""
        floor, capacity = self._bytes(), self._disk.capacity(self._folder)
        if floor and floor >= capacity:
            found = f"log.keep_free is {size_text(floor)}, and the file system of {self._folder} has"
            raise StartError(f"{found} {size_text(capacity)}", "keep less free, or 'auto'")

    @property
    def retained_bytes(self) -> int:
        """The bytes of the log that are never removed to free space."""
        return self._bytes() // RETAINED_SHARE

    def free_bytes(self) -> int:
        return self._disk.free_bytes(self._folder)

    def removed(self, size: int, free_before: int, now: float) -> None:
        """After a file of that size was removed."""
        if self.free_bytes() - free_before < size // 2:
            self._unfreed.append((now + UNFREED_SECONDS, size))

    def __str__(self) -> str:
        floor = self._bytes()
        share = ", 10 % of the file system or 2 GiB" if self._keep_free == AUTO else ""
        return f"less than {size_text(floor)} are free (log.keep_free{share})" if floor else ""

    def _bytes(self) -> int:
        capacity = self._disk.capacity(self._folder)
        return keep_free_bytes(self._keep_free, capacity) if capacity else 0

    def _note(self, free: int, floor: int) -> None:
        if free >= floor + self._margin:
            if self.warning:
                log.info("%s: %s are free again, more than log.keep_free", self._folder, size_text(free))
            self.warning = ""
        elif free < floor or self.warning:
            began = not self.warning
            self.warning = (
                f"{size_text(free)} are free and log.keep_free is {size_text(floor)}: "
                f"the oldest segments of the log are removed, down to {size_text(floor // RETAINED_SHARE)}"
            )
            if began:
                log.warning(
                    "%s: %s; make room, or limit the log with log.retain_bytes", self._folder, self.warning
                )
