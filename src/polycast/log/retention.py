"""How much of the log is kept: by size and by age, whole segments, oldest first, never one that is written to."""

from __future__ import annotations

import logging
from pathlib import Path

from polycast.log.folder import Segment, remove, segments, size_of
from polycast.log.format import MICROS
from polycast.log.outline import Outline, outline_of
from polycast.log.settings import LogSettings

log = logging.getLogger("polycast.log")


class Retention:
    def __init__(self, folder: Path, settings: LogSettings) -> None:
        self._folder = folder
        self._bytes = settings.retain_bytes
        self._seconds = settings.retain_seconds
        self._oldest: Outline | None = None
        self.segments_removed = self.messages_removed = self.bytes_removed = 0

    def apply(self, closed: int, now: float) -> None:
        """`closed` is the offset before which segments are written to no more, `now` the time since the epoch."""
        if not self._bytes and not self._seconds:
            return
        found = segments(self._folder)
        size = sum(map(size_of, found))
        for segment in found:
            if segment.first >= closed:
                return
            try:
                outline = self._outline(segment)
            except FileNotFoundError:  # sealed meanwhile: next time
                return
            if not (self._bytes and size > self._bytes) and not self._is_old(outline, now):
                return
            self._remove(outline)
            size -= outline.size

    def _outline(self, segment: Segment) -> Outline:
        """The oldest one is asked for again and again."""
        if self._oldest is None or self._oldest.segment != segment:
            self._oldest = outline_of(segment)
        return self._oldest

    def _is_old(self, outline: Outline, now: float) -> bool:
        if not self._seconds:
            return False
        if outline.last_time is None:  # it is damaged, or empty
            return outline.segment.path.stat().st_mtime < now - self._seconds
        return outline.last_time / MICROS < now - self._seconds

    def _remove(self, outline: Outline) -> None:
        remove(outline.segment)
        self.segments_removed += 1
        self.messages_removed += outline.rows
        self.bytes_removed += outline.size
        log.info(
            "removed %s: offsets %s to %s, %s messages, %s bytes",
            outline.segment.path.name, f"{outline.segment.first:,}", f"{outline.next - 1:,}",
            f"{outline.rows:,}", f"{outline.size:,}",
        )  # fmt: skip
