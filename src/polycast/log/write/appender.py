"""The middle of group commit, for large groups: one is written while the writer encodes the next one and the
syncer syncs the one before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import NamedTuple

from polycast.log.durable import Durable
from polycast.log.files.hot import HotSegment
from polycast.log.write.syncer import Syncer, WrittenGroup
from polycast.model import Buffer

log = logging.getLogger("polycast.log")


class UnwrittenGroup(NamedTuple):
    segment: HotSegment
    pieces: Sequence[Buffer]
    """They must not change before the result is known."""
    durable: Durable


class Appender:
    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._groups: SimpleQueue[UnwrittenGroup | None] = SimpleQueue()
        self._results: SimpleQueue[str] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log-appender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, group: UnwrittenGroup) -> None:
        self._groups.put(group)

    def result(self) -> str:
        """Waits until the group is written and passed to the syncer. Why it is not written, or an empty text."""
        return self._results.get()

    def append(self, group: UnwrittenGroup) -> str:
        """In the thread of the caller, while no group is on its way."""
        reason = self._syncer.failed or _append(group)
        self._syncer.put(WrittenGroup(None if reason else group.segment, group.durable._replace(reason=reason)))
        return reason

    def close(self) -> None:
        self._groups.put(None)
        self._thread.join()

    def _run(self) -> None:
        while group := self._groups.get():
            self._results.put(self.append(group))
            del group  # its memory is free before the next one comes


def _append(group: UnwrittenGroup) -> str:
    try:
        group.segment.append(group.pieces)
    except OSError as error:
        return error.strerror or str(error)
    except Exception as error:
        log.exception("a group could not be written")
        return type(error).__name__
    return ""
