"""Retention by size, by age and by free disk space.

Removes whole segments, oldest first, never the one being written. The log of a node removes what all nodes agreed
to remove: the node's own limits are only proposed, and log.keep_free does not apply.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

from polycast.log.files.agreed_first import write_agreed_first
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import Segment, remove_segment, segment_size, segments
from polycast.log.read.segment_info import SegmentInfo, read_segment_info
from polycast.log.settings import LogSettings
from polycast.log.times import MICROS
from polycast.log.upkeep.free_space import FreeSpace
from polycast.log.upkeep.inventory import Inventory
from polycast.text import size_text

log = logging.getLogger("polycast.log")


class Retention:
    def __init__(
        self, folder: Path, settings: LogSettings, inventory: Inventory, disk: Disk = DISK,
        shared: bool = False,
    ) -> None:  # fmt: skip
        """`shared`: nodes agree on what is removed."""
        self._folder = folder
        self._disk = disk
        self._inventory = inventory
        self._bytes = settings.retain_bytes
        self._seconds = settings.retain_seconds
        self._shared = shared
        self.wanted = 0
        """The limits of this node allow to remove everything before this offset."""
        self.agreed = 0
        """All nodes remove everything before this offset."""
        self.behind = False
        """Whether more would be removed, if it were summarized, or not just being sealed."""
        self._published = 0
        self._oldest: SegmentInfo | None = None
        self.free_space = FreeSpace(folder, settings, disk)
        self.segments_removed = self.messages_removed = 0
        self.removed_for_room = 0
        """Segments removed because of log.keep_free."""

    def __str__(self) -> str:
        limits = ["" if self._shared else str(self.free_space)]
        if self._bytes:
            limits.append(f"the log has more than {size_text(self._bytes)} (log.retain_bytes)")
        if self._seconds:
            limits.append(f"messages are older than {self._seconds:,.0f} s (log.retain_seconds)")
        shown = ", or ".join(filter(None, limits))
        where = ", at all nodes" if self._shared else ""
        return f"the oldest segments are removed{where} when {shown}" if shown else "no segment is ever removed"

    def apply(self, closed: int, now: float, summarized: int | None = None) -> None:
        """Segments before the offset `closed` are closed. `now` is in seconds since the epoch.

        `summarized`: the offset of the last snapshot. Without the snapshot behind it, a segment stays, unless the
        disk is full: the sequences and batch ids in it are needed."""
        self.behind = False
        if self._bytes or self._seconds:
            self._apply_limits(closed, now, summarized)
        if self._shared:
            self._remove_agreed(closed, summarized)
        else:
            self._make_room(closed, now)

    def _remove_agreed(self, closed: int, summarized: int | None) -> None:
        if self.agreed > self._published:
            write_agreed_first(self._folder, self.agreed, self._disk)
            self._published = self.agreed
        for segment, after in pairwise(segments(self._folder)):
            needed = summarized is not None and after.first > summarized
            if after.first > min(self.agreed, closed) or needed:
                self.behind |= after.first <= self.agreed
                return
            try:
                self._remove(read_segment_info(segment), "agreed by all nodes")
            except FileNotFoundError:  # sealed meanwhile: next round
                return

    def _apply_limits(self, closed: int, now: float, summarized: int | None) -> None:
        found = segments(self._folder)
        following = {before.first: after.first for before, after in pairwise(found)}
        size = self._inventory.written_bytes(found, closed)
        for segment in found:
            needed = summarized is not None and following.get(segment.first, 0) > summarized
            large = bool(self._bytes) and size > self._bytes
            if segment.first >= closed or needed:
                self.behind |= large
                return
            try:
                info = self._info(segment)
            except FileNotFoundError:  # sealed meanwhile: next round
                return
            if not large and not self._is_old(info, now):
                return
            if self._shared:
                self.wanted = max(self.wanted, info.next)
            else:
                self._remove(info, "log.retain_bytes" if large else "log.retain_seconds")
            size -= info.size

    def _make_room(self, closed: int, now: float) -> None:
        missing = self.free_space.missing(now)
        found = segments(self._folder) if missing else []
        removable = sum(map(segment_size, found)) - self.free_space.retained_bytes
        for segment in found:
            if missing <= 0 or segment.first >= closed:
                self.behind |= missing > 0
                return
            try:
                info = self._info(segment)
            except FileNotFoundError:  # sealed meanwhile: next round
                return
            removable -= info.size
            if removable < 0:
                return
            free_before = self.free_space.free_bytes()
            self._remove(info, "log.keep_free")
            self.removed_for_room += 1
            self.free_space.removed(info.size, free_before, now)
            missing -= info.size

    def _info(self, segment: Segment) -> SegmentInfo:
        """With the size of its file. Cached: every round needs the oldest segment."""
        if self._oldest is None or self._oldest.segment != segment:
            self._oldest = read_segment_info(segment)._replace(size=segment_size(segment))
        return self._oldest

    def _is_old(self, info: SegmentInfo, now: float) -> bool:
        if not self._seconds:
            return False
        if info.last_time is None:  # damaged or empty
            return info.segment.path.stat().st_mtime < now - self._seconds
        return info.last_time / MICROS < now - self._seconds

    def _remove(self, info: SegmentInfo, limit: str) -> None:
        remove_segment(info.segment)
        self.segments_removed += 1
        self.messages_removed += info.rows
        log.info(
            "removed %s: offsets %s to %s, %s messages, %s bytes (%s)",
            info.segment.path.name, f"{info.segment.first:,}", f"{info.next - 1:,}",
            f"{info.rows:,}", f"{info.size:,}", limit,
        )  # fmt: skip
