"""Housekeeping: background work on segments, in a thread with low priority.

Each round writes the snapshots of new segments, seals closed hot segments, and removes the oldest segments past
the retention limits or to free disk space. A file `seal.wanted` in the folder requests to seal everything,
including the segment being written; it is removed when that is done.

An error is logged once and retried later. Damaged segments are salvaged: hot ones when they are sealed, and all
others when a reader or the inventory meets the damage.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from polycast.errors import LogDamageError
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import SEAL_REQUEST, Segment, segment_size, segments
from polycast.log.files.format import Gap
from polycast.log.repair.recovery import inspect
from polycast.log.repair.salvage import salvage
from polycast.log.settings import LogSettings
from polycast.log.upkeep.inventory import Inventory
from polycast.log.upkeep.lost_segments import record_hole
from polycast.log.upkeep.resealing import reseal
from polycast.log.upkeep.retention import Retention
from polycast.log.upkeep.sealing import seal
from polycast.log.upkeep.surge import RATE_SECONDS, Surge

log = logging.getLogger("polycast.log")

ROUND_SECONDS = 1.0
RETRY_SECONDS = 30.0
NICE = 10


class Housekeeping:
    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        closed: Callable[[], int],
        roll: Callable[[], None],
        snapshot: Callable[[Callable[[Segment], bool]], int | None],
        disk: Disk = DISK,
        open_bytes: Callable[[], int] = lambda: 0,
        bytes_written: Callable[[], int] = lambda: 0,
        shared: bool = False,
    ) -> None:
        """Segments before the offset `closed` are closed; `roll` closes the segment being written, which has
        `open_bytes` bytes; `snapshot` writes missing snapshots, up to a segment that has to wait, and returns the
        offset of the last one; `bytes_written` counts the bytes of all segments."""
        self._folder = folder
        self._settings = settings
        self._closed = closed
        self._roll = roll
        self._snapshot = snapshot
        self._surge = Surge(bytes_written)
        self._disk = disk
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self.catching_up = False
        """Whether the log is filled as fast as possible: sealing and snapshots then wait, retention does not."""
        self._logged: dict[str, str] = {}
        self._retry_at: dict[int, float] = {}
        self._seal_up_to: int | None = None
        self.inventory = Inventory(folder, open_bytes)
        self._retention = Retention(folder, settings, self.inventory, disk, shared)
        self._retained_at = 0.0
        self._summarized: int | None = None
        self.segments_sealed = self.bytes_sealed = self.segments_quarantined = 0
        self.segments_missing = 0
        """Holes between segments that this run has found."""
        self._salvage_at = 0.0
        self._thread = threading.Thread(target=self._run, name="log-housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Starts the next round now."""
        self._woken.set()

    def stop(self) -> None:
        """Stops; a segment whose sealing is interrupted stays hot."""
        self._stopped.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def removable(self) -> int:
        """In a cluster: the limits of this node allow to remove everything before this offset."""
        return self._retention.wanted

    def remove_before(self, offset: int) -> None:
        """In a cluster: all nodes agreed to remove everything before this offset."""
        if offset > self._retention.agreed:
            self._retention.agreed = offset
            self.wake()

    @property
    def segments_removed(self) -> int:
        return self._retention.segments_removed

    @property
    def messages_removed(self) -> int:
        return self._retention.messages_removed

    @property
    def removed_for_room(self) -> int:
        return self._retention.removed_for_room

    def warnings(self) -> list[str]:
        """For the operator: segments are removed to free disk space; the log is damaged."""
        return list(filter(None, (self._retention.free_space.warning, self._damage_warning())))

    def _damage_warning(self) -> str:
        """Until the next start. The loss stays in the metrics, until retention removes its range."""
        if not self.segments_quarantined and not self.segments_missing and not self.inventory.suspects():
            return ""
        lost = f"{self.inventory.messages_unreadable:,} messages of the log are lost"
        return f"damage was found in the log: {lost}; polycast log info lists their offsets"

    def note_damage(self, gap: Gap) -> None:
        """In any thread: a reader met damage that the log does not record."""
        self.inventory.note(gap)
        self.wake()

    def describe(self) -> str:
        """The retention limits as text."""
        return str(self._retention)

    # -- in the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # on Linux, of this thread only
        while not self._stopped.is_set():
            self.round()
            self._woken.wait(ROUND_SECONDS)
            self._woken.clear()

    def round(self) -> None:
        if self.catching_up:
            self._retain(self._closed())
            return
        self._surge.measure()
        self._do_fast_tasks()
        self._try(SEAL_REQUEST, self._check_seal_request)
        if self._settings.seal or self._seal_up_to is not None:
            self._seal_all()
        self._try(SEAL_REQUEST, self._finish_seal_request)

    def _do_fast_tasks(self) -> None:
        """The fast tasks, also between two segments to seal."""
        self._try("snapshots", self._summarize)
        self._retain(self._closed())
        self._try("inventory", self._take_stock)
        if self.inventory.suspects() and time.monotonic() >= self._salvage_at:
            self._salvage_at = time.monotonic() + RETRY_SECONDS
            if self._try("salvage", self._salvage):
                self._salvage_at = 0.0
                self._try("inventory", self._take_stock)

    def _summarize(self) -> None:
        self._summarized = self._snapshot(self._waits_for_snapshot)

    def _waits_for_snapshot(self, segment: Segment) -> bool:
        """Not while space is short: segments are then removed even if they are not summarized.

        After a surge many snapshots are missing: disk space is freed between two of them."""
        if self._stopped.is_set():
            return True
        if self._summarized is not None:
            self._retain_if_due(segment)
        return not self._retention.free_space.warning and self._waits(segment)

    def _retain(self, closed: int) -> None:
        self._try("retention", lambda: self._retention.apply(closed, time.time(), self._summarized))
        self._retained_at = time.monotonic()

    def _try(self, what: str, action: Callable[[], object]) -> bool:
        """Logs an error once, until it changes."""
        try:
            action()
        except (OSError, LogDamageError) as error:
            self._log_once(what, str(error))
            return False
        except Exception as error:
            if self._logged.get(what) != str(error):
                self._logged[what] = str(error)
                log.exception("%s: %s", self._folder, what)
            return False
        self._logged.pop(what, None)
        return True

    def _log_once(self, what: str, text: str) -> None:
        if self._logged.get(what) != text:
            self._logged[what] = text
            log.error("%s: %s: %s; it is retried", self._folder, what, text)

    # -- damage ------------------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        self.inventory.update(self._closed())
        holes = self.inventory.holes
        for hole in holes:
            before = [segment for segment in segments(self._folder) if segment.first < hole.first][-1]
            if not before.sealed and inspect(before.path).error:
                self.inventory.unreadable.add(before.first)  # the headers end at the damage, the rows may not
            else:
                record_hole(self._folder, hole, self._disk)
                self.segments_missing += 1
        if holes:
            self.inventory.update(self._closed())

    def _salvage(self) -> None:
        closed, found = self._closed(), segments(self._folder)
        ends = [*(segment.first for segment in found[1:]), closed]
        for segment, after in zip(found, ends, strict=True):
            suspects = [offset for offset in self.inventory.suspects() if segment.first <= offset < after]
            if suspects and segment.first < closed:
                self._salvage_segment(segment, after)
                self.inventory.forget(suspects)

    def _salvage_segment(self, segment: Segment, after: int) -> None:
        """A reader may have been wrong, or the damage gone: then nothing is changed."""
        if segment.sealed:
            damaged = bool(reseal(segment.path, after, self._disk))
        else:
            found = inspect(segment.path)
            damaged = bool(found.error)
            if damaged:
                salvage(segment.path, self._disk)
        self.segments_quarantined += damaged

    # -- sealing -----------------------------------------------------------------------------------------

    def _hot(self) -> list[Segment]:
        return [segment for segment in segments(self._folder) if not segment.sealed]

    def _seal_all(self) -> None:
        for segment in self._hot():
            if self._stopped.is_set() or segment.first >= self._closed():
                return
            if self._retry_at.get(segment.first, 0.0) > time.monotonic() or not segment.path.exists():
                continue
            if self._waits(segment):
                return
            if self._try("sealing", lambda segment=segment: self._seal(segment)):  # type: ignore[misc]
                self._retry_at.pop(segment.first, None)
            else:
                self._retry_at[segment.first] = time.monotonic() + RETRY_SECONDS
            self._do_fast_tasks()

    def _waits(self, segment: Segment) -> bool:
        """Nobody asked for it, and retention has what it needs."""
        return self._seal_up_to is None and not self._retention.behind and self._surge.delays(segment)

    def _seal(self, segment: Segment) -> None:
        size = segment_size(segment)
        try:
            sealed = seal(
                segment.path,
                self._settings.seal_share,
                lambda seconds: self._pause(seconds, segment),
                self._stopped.is_set,
                self._disk,
            )
        except LogDamageError:
            salvage(segment.path, self._disk)
            self.segments_quarantined += 1
            self.wake()
            return
        if sealed:
            self.segments_sealed += 1
            self.bytes_sealed += size
        elif not self._stopped.is_set():
            segment.path.unlink()  # empty

    def _pause(self, seconds: float, sealing: Segment) -> None:
        """Frees disk space while a segment is sealed."""
        self._stopped.wait(seconds)
        self._retain_if_due(sealing)
        while self._waits(sealing) and not self._stopped.wait(RATE_SECONDS):
            self._retain_if_due(sealing)

    def _retain_if_due(self, busy: Segment) -> None:
        """That segment and later ones stay."""
        if time.monotonic() - self._retained_at >= ROUND_SECONDS:
            self._retain(min(busy.first, self._closed()))

    # -- requests to seal --------------------------------------------------------------------------------

    def _check_seal_request(self) -> None:
        if not (self._folder / SEAL_REQUEST).exists():
            self._seal_up_to = None
        elif self._seal_up_to is None:
            hot = self._hot()
            self._seal_up_to = hot[-1].first if hot else -1
            if self._seal_up_to >= self._closed():
                self._roll()

    def _finish_seal_request(self) -> None:
        if self._seal_up_to is not None and all(segment.first > self._seal_up_to for segment in self._hot()):
            (self._folder / SEAL_REQUEST).unlink(missing_ok=True)
            self._seal_up_to = None
