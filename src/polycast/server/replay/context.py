"""What all replays share: the log, the threads that read it, and the current audiences."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from polycast.log.files.format import Gap
from polycast.log.log import Log
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import Work, once
from polycast.model import Encoder, Pattern
from polycast.routing import Audience, Router, Topics
from polycast.server.io.connection import Connection
from polycast.server.replay.pauses import Pauses
from polycast.server.replay.reader_pool import ReaderPool
from polycast.server.replay.rows_budget import RowsBudget

T = TypeVar("T")

LINKS_LIMIT = 10_000


class ReplayContext:
    def __init__(self, router: Router, log: Log, readers: ReaderPool) -> None:
        self._router = router
        self.log = log
        self.readers = readers
        self.index = SegmentIndex(log.folder)
        self.rows_budget = RowsBudget()
        self.pauses = Pauses()
        self.first = log.next
        """The first offset of this run of the broker."""
        self.stopped = False
        self.links: OrderedDict[str, None] = OrderedDict()
        """Names of links of this run, closed ones included, the newest last."""
        self.queue_share: Callable[[], int]
        """The bytes that each replay may queue, if all queue as much."""
        self.miss: Callable[[Connection, Gap], None]
        """Reports missed messages to the subscriber and to the operator."""
        self.go_live: Callable[[Connection, Pattern, Encoder, int], None]
        """Makes a subscription live that was served up to an offset."""

    def audience(self, topic: bytes) -> Audience:
        return self._router.audience(topic)

    @property
    def topics(self) -> Topics:
        return self._router.topics

    def note_link(self, connection: Connection) -> None:
        """Messages of one link do not go to another."""
        self.links[connection.name] = None
        if len(self.links) > LINKS_LIMIT:
            self.links.popitem(last=False)

    async def read_rows(self, connection: Connection, act: Callable[..., T], *args: Any) -> T:
        """Calls a function that reads rows in a thread, for a replay that has a share of their memory."""
        return await self.readers.read_rows(connection, once(act, *args))

    async def in_turns(self, connection: Connection, work: Work[T]) -> T:
        return await self.readers.read(connection, work)
