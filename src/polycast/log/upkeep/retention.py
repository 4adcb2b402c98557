"""How much of the log is kept: by size, by age and by the room on the disk.

Whole segments go, oldest first, never one that is written to.
"""

from __future__ import annotations

import logging
from pathlib import Path

from polycast.declare import size_text
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import Segment, remove_segment, segment_size, segments
from polycast.log.read.segment_info import SegmentInfo, read_segment_info
from polycast.log.settings import LogSettings
from polycast.log.times import MICROS
from polycast.log.upkeep.free_space import FreeSpace

log = logging.getLogger("polycast.log")


class Retention:
    def __init__(self, folder: Path, settings: LogSettings, disk: Disk = DISK) -> None:
        self._folder = folder
        self._bytes = settings.retain_bytes
        self._seconds = settings.retain_seconds
        self._oldest: SegmentInfo | None = None
        self.floor = FreeSpace(folder, settings, disk)
        self.segments_removed = self.messages_removed = self.bytes_removed = 0
        self.removed_for_room = 0
        """How many of those segments went because of log.keep_free."""

    def __str__(self) -> str:
        """When messages go, for people."""
        limits = [str(self.floor)]
        if self._bytes:
            limits.append(f"the log has more than {size_text(self._bytes)} (log.retain_bytes)")
        if self._seconds:
            limits.append(f"messages are older than {self._seconds:,.0f} s (log.retain_seconds)")
        said = ", or ".join(filter(None, limits))
        return f"the oldest segments are removed when {said}" if said else "no segment is ever removed"

    def apply(self, closed: int, now: float) -> None:
        """`closed` is the offset before which segments are written to no more, `now` the time since the epoch."""
        if self._bytes or self._seconds:
            self._keep_limits(closed, now)
        self._make_room(closed, now)

    def _keep_limits(self, closed: int, now: float) -> None:
        found = segments(self._folder)
        size = sum(map(segment_size, found))
        for segment in found:
            if segment.first >= closed:
                return
            try:
                outline = self._outline(segment)
            except FileNotFoundError:  # sealed meanwhile: next time
                return
            large = bool(self._bytes) and size > self._bytes
            if not large and not self._is_old(outline, now):
                return
            self._remove(outline, "log.retain_bytes" if large else "log.retain_seconds")
            size -= outline.size

    def _make_room(self, closed: int, now: float) -> None:
        missing = self.floor.missing(now)
        found = segments(self._folder) if missing else []
        removable = sum(map(segment_size, found)) - self.floor.stays
        for segment in found:
            if missing <= 0 or segment.first >= closed:
                return
            try:
                outline = self._outline(segment)
            except FileNotFoundError:  # sealed meanwhile: next time
                return
            removable -= outline.size
            if removable < 0:
                return
            room = self.floor.room()
            self._remove(outline, "log.keep_free")
            self.removed_for_room += 1
            self.floor.removed(outline.size, room, now)
            missing -= outline.size

    def _outline(self, segment: Segment) -> SegmentInfo:
        """The oldest one is asked for again and again."""
        if self._oldest is None or self._oldest.segment != segment:
            self._oldest = read_segment_info(segment)
        return self._oldest

    def _is_old(self, outline: SegmentInfo, now: float) -> bool:
        if not self._seconds:
            return False
        if outline.last_time is None:  # it is damaged, or empty
            return outline.segment.path.stat().st_mtime < now - self._seconds
        return outline.last_time / MICROS < now - self._seconds

    def _remove(self, outline: SegmentInfo, limit: str) -> None:
        remove_segment(outline.segment)
        self.segments_removed += 1
        self.messages_removed += outline.rows
        self.bytes_removed += outline.size
        log.info(
            "removed %s: offsets %s to %s, %s messages, %s bytes (%s)",
            outline.segment.path.name, f"{outline.segment.first:,}", f"{outline.next - 1:,}",
            f"{outline.rows:,}", f"{outline.size:,}", limit,
        )  # fmt: skip
