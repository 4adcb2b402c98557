"""The second half of group commit: one fsync makes all written groups durable, and announces them.

The writer goes on during an fsync; the next fsync covers all groups written meanwhile, which become durable in the
order of their offsets. After a failed fsync the state of the disk is unknown: every later group is refused, and no
fsync is retried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from polycast.declare import Histogram
from polycast.log.durable import Durable
from polycast.log.files.hot import HotSegment
from polycast.log.settings import LogSettings

log = logging.getLogger("polycast.log")


class WrittenGroup(NamedTuple):
    """A group that is announced after the next fsync of its segment; without a segment, at once."""

    segment: HotSegment | None
    durable: Durable


class FullSegment(NamedTuple):
    """A segment to close, which ends before this offset."""

    segment: HotSegment
    next: int
    done: threading.Event
    """Set when the segment is closed, or failed to close."""


Item = WrittenGroup | FullSegment


class Syncer:
    def __init__(
        self, settings: LogSettings, on_durable: Callable[[Durable], None], on_closed: Callable[[int], None]
    ) -> None:
        self._always = settings.sync == "always"
        self._seconds = settings.sync_seconds if settings.sync == "interval" else None
        self._on_durable = on_durable
        self._on_closed = on_closed
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._dirty: HotSegment | None = None
        self._synced_at = 0.0
        self.failed = ""
        """After a failed fsync: why every group is refused."""
        self.times = Histogram()
        """Durations of fsync calls."""
        self._thread = threading.Thread(target=self._run, name="log-syncer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, item: Item) -> None:
        self._queue.put(item)

    def close(self) -> None:
        """Returns when every item that was put is announced."""
        self._queue.put(None)
        self._thread.join()

    # -- in the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        running = True
        while running:
            items, running = self._take()
            waiting: list[Durable] = []
            for item in items:
                if isinstance(item, FullSegment):
                    self._announce(waiting)
                    waiting = []
                    self._close(item)
                    continue
                if item.segment:
                    self._dirty = item.segment
                waiting.append(item.durable)
            self._announce(waiting)
            self._sync_if_due()

    def _take(self) -> tuple[list[Item], bool]:
        """All queued items, and whether more may follow."""
        items: list[Item] = []
        while True:
            try:
                found = self._queue.get(block=not items, timeout=self._timeout())
            except Empty:
                return items, True
            if found is None:
                return items, False
            items.append(found)

    def _timeout(self) -> float | None:
        """Seconds until the next fsync is due."""
        if self._seconds is None or not self._dirty:
            return None
        return max(0.0, self._synced_at + self._seconds - time.monotonic())

    def _announce(self, waiting: list[Durable]) -> None:
        if waiting and self._always:
            self._sync()
        for durable in waiting:
            self._on_durable(durable._replace(reason=durable.reason or self.failed))

    def _sync_if_due(self) -> None:
        if self._seconds is not None and self._timeout() == 0.0:
            self._sync()

    def _sync(self) -> None:
        segment, self._dirty = self._dirty, None
        if segment is None or self.failed:
            return
        began = time.monotonic()
        try:
            segment.sync()
        except OSError as error:
            self._fail(segment, error)
        self._synced_at = time.monotonic()
        self.times.add(self._synced_at - began)

    def _close(self, full: FullSegment) -> None:
        self._dirty = None
        try:
            if not self.failed:
                full.segment.close()
                self._on_closed(full.next)
        except OSError as error:
            self._fail(full.segment, error)
        finally:
            full.done.set()

    def _fail(self, segment: HotSegment, error: OSError) -> None:
        self.failed = f"fsync failed: {error.strerror}; no message is stored until the broker starts again"
        log.critical("%s: %s", segment.path, self.failed)
