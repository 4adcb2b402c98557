"""What happens to segments behind the writer's back, in a thread of its own that stays out of everybody's way.

In each round: snapshots of segments that have begun, then every hot segment that is written to no more is sealed,
then the oldest segments go that are more than was asked to be kept, or than there is room for. A file
`seal.wanted` in the folder asks for everything to be sealed that is there, the segment that is being written
included; it goes when that is done.

What the disk refuses is said once, and tried again later. A hot segment that is damaged is put aside as it is, and
what is good of it goes on.
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
from polycast.log.repair.salvage import salvage
from polycast.log.settings import LogSettings
from polycast.log.upkeep.retention import Retention
from polycast.log.upkeep.sealing import seal

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
        snapshot: Callable[[], None],
        disk: Disk = DISK,
    ) -> None:
        """Segments that begin before `closed` are written to no more; `roll` asks for the one that is to end."""
        self._folder = folder
        self._settings = settings
        self._closed = closed
        self._roll = roll
        self._snapshot = snapshot
        self._disk = disk
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._said: dict[str, str] = {}
        self._again_at: dict[int, float] = {}
        self._wanted: int | None = None
        self._retention = Retention(folder, settings, disk)
        self._looked = 0.0
        self.segments_sealed = self.bytes_sealed = self.segments_quarantined = 0
        self._thread = threading.Thread(target=self._run, name="log-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Not only when it is time again: there is something to do."""
        self._woken.set()

    def stop(self) -> None:
        """What is being sealed is left as it was."""
        self._stopped.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def segments_removed(self) -> int:
        return self._retention.segments_removed

    @property
    def messages_removed(self) -> int:
        return self._retention.messages_removed

    @property
    def removed_for_room(self) -> int:
        return self._retention.removed_for_room

    @property
    def warning(self) -> str:
        """Why messages go that the operator may want to keep; an empty text if none do."""
        return self._retention.floor.warning

    def describe(self) -> str:
        """When messages go, for people."""
        return str(self._retention)

    # -- in the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # on Linux that is this thread alone
        while not self._stopped.is_set():
            self.round()
            self._woken.wait(ROUND_SECONDS)
            self._woken.clear()

    def round(self) -> None:
        self._keep_house()
        self._try(SEAL_REQUEST, self._hear_wish)
        if self._settings.seal or self._wanted is not None:
            self._seal_all()
        self._try(SEAL_REQUEST, self._grant_wish)

    def _keep_house(self) -> None:
        """What takes no time, however much there is to be sealed."""
        self._try("snapshots", self._snapshot)
        self._retain(self._closed())

    def _retain(self, closed: int) -> None:
        self._try("retention", lambda: self._retention.apply(closed, time.time()))
        self._looked = time.monotonic()

    def _try(self, what: str, action: Callable[[], object]) -> bool:
        """Whatever goes wrong is said once, as long as it stays the same."""
        try:
            action()
        except (OSError, LogDamageError) as error:
            self._say(what, str(error))
            return False
        except Exception as error:
            if self._said.get(what) != str(error):
                self._said[what] = str(error)
                log.exception("%s: %s", self._folder, what)
            return False
        self._said.pop(what, None)
        return True

    def _say(self, what: str, text: str) -> None:
        if self._said.get(what) != text:
            self._said[what] = text
            log.error("%s: %s: %s; it is tried again", self._folder, what, text)

    # -- sealing -----------------------------------------------------------------------------------------

    def _hot(self) -> list[Segment]:
        return [segment for segment in segments(self._folder) if not segment.sealed]

    def _seal_all(self) -> None:
        for segment in self._hot():
            if self._stopped.is_set() or segment.first >= self._closed():
                return
            if self._again_at.get(segment.first, 0.0) > time.monotonic() or not segment.path.exists():
                continue
            if self._try("sealing", lambda segment=segment: self._seal(segment)):  # type: ignore[misc]
                self._again_at.pop(segment.first, None)
            else:
                self._again_at[segment.first] = time.monotonic() + RETRY_SECONDS
            self._keep_house()

    def _seal(self, segment: Segment) -> None:
        size = segment_size(segment)
        try:
            sealed = seal(
                segment.path,
                self._settings.seal_share,
                lambda seconds: self._rest(seconds, segment.first),
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
            segment.path.unlink()  # it is empty

    def _rest(self, seconds: float, sealing: int) -> None:
        """A full disk does not wait until a segment is sealed; that one and those behind it stay meanwhile."""
        self._stopped.wait(seconds)
        if time.monotonic() - self._looked >= ROUND_SECONDS:
            self._retain(min(sealing, self._closed()))

    # -- wishes ------------------------------------------------------------------------------------------

    def _hear_wish(self) -> None:
        if not (self._folder / SEAL_REQUEST).exists():
            self._wanted = None
        elif self._wanted is None:
            hot = self._hot()
            self._wanted = hot[-1].first if hot else -1
            if self._wanted >= self._closed():
                self._roll()

    def _grant_wish(self) -> None:
        if self._wanted is not None and all(segment.first > self._wanted for segment in self._hot()):
            (self._folder / SEAL_REQUEST).unlink(missing_ok=True)
            self._wanted = None
