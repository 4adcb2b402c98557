"""All replays that are under way."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from polycast.broker import Hub
from polycast.log.log import Log
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import Work, once
from polycast.model import Encoder, Pattern, StartPosition
from polycast.routing import Audience, Topics
from polycast.server.dispatch.outbox import SILENT, Outbox
from polycast.server.dispatch.publisher import Publisher
from polycast.server.io.connection import Connection
from polycast.server.replay.last_offsets import Newest
from polycast.server.replay.reader_pool import Readers
from polycast.server.replay.replay import Replay
from polycast.server.replay.spill import SpillReplay
from polycast.server.replay.start_replay import FromReplay, LastReplay
from polycast.server.settings import LimitSettings

log = logging.getLogger("polycast.replay")

T = TypeVar("T")

LINKS_AT_MOST = 10_000


class Replays:
    def __init__(self, hub: Hub, publisher: Publisher, outbox: Outbox, log: Log, limits: LimitSettings) -> None:
        self._hub = hub
        self._publisher = publisher
        self._outbox = outbox
        self.log = log
        self.first = log.next
        """Everything from here on was published while this broker ran."""
        self.committed = log.settings.delivery == "committed"
        self.readers = Readers(limits.reads, limits.read_seconds)
        self.index = SegmentIndex(log.folder)
        self.newest = Newest(hub.router.topics, log.next)
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: dict[tuple[Connection, type[FromReplay]], FromReplay] = {}
        """Those to which more may be added in this turn."""
        self._open: dict[Connection, set[FromReplay]] = {}
        self._spilled: dict[Connection, SpillReplay] = {}
        self.links: OrderedDict[str, None] = OrderedDict()
        """The names of connections to other brokers, the newest last; also of such that are gone."""
        self.stopped = False
        self.spills = 0

    @property
    def count(self) -> int:
        return len(self._tasks)

    # -- subscriptions -----------------------------------------------------------------------------------

    def begin(
        self, connection: Connection, pattern: Pattern, encoder: Encoder, start: StartPosition | None
    ) -> None:
        """Without a start: with the last message of each topic."""
        self.drop(connection, pattern)
        key = connection, FromReplay if start else LastReplay
        if key not in self._begun:
            replay = self._begun[key] = key[1](self, connection)
            self._open.setdefault(connection, set()).add(replay)
            asyncio.get_running_loop().call_soon(self._begin, key)
        self._begun[key].add(pattern, encoder, start or StartPosition())
        self._hub.subscribe(connection.subscriber, pattern, SILENT)

    def change(self, connection: Connection, pattern: Pattern, encoder: Encoder) -> bool:
        """Another form for what is being served from the log; False where that is not the case."""
        if connection.subscriber.patterns.get(pattern) is not SILENT:
            return False
        for replay in self._open.get(connection, ()):
            replay.wishes.change(pattern, encoder)
        return True

    def drop(self, connection: Connection, pattern: Pattern) -> None:
        """Nobody waits for it any more."""
        for replay in self._open.get(connection, ()):
            replay.drop(pattern)

    def note(self, connection: Connection, pattern: Pattern) -> None:
        """It was subscribed to just now; what is older does not concern it."""
        if connection.queue.spilled:
            self._spilled[connection].note_made(pattern)

    def go_live(self, connection: Connection, pattern: Pattern, encoder: Encoder, offset: int) -> None:
        """It has been served up to that offset."""
        if connection.queue.spilled:
            self._spilled[connection].note_served(pattern, offset)
        self._hub.subscribe(connection.subscriber, pattern, encoder)

    def spill(self, connection: Connection) -> None:
        """Its queue is full: from here on it reads from the log. Everything delivered so far was queued."""
        self._spill(connection, self._publisher.undelivered, slow=True)

    def spill_audience(self, topics: Iterable[bytes], offset: int, links: bool = True) -> None:
        """Turns all subscribers of these topics to the log: no queue holds what is about to be published."""
        self._outbox.flush()
        for connection in _connections({self.audience(topic) for topic in topics}):
            live = not connection.queue.spilled and not connection.closing
            if live and (links or not connection.subscriber.link):
                connection.queue.start_spill()
                self._spill(connection, offset, slow=False)

    def _spill(self, connection: Connection, offset: int, slow: bool) -> None:
        self.spills += slow
        replay = self._spilled[connection] = SpillReplay(self, connection, offset, slow)
        self._run(replay)

    def note_link(self, connection: Connection) -> None:
        """What comes over one link does not go to another."""
        self.links[connection.name] = None
        if len(self.links) > LINKS_AT_MOST:
            self.links.popitem(last=False)

    # -- what replays need -------------------------------------------------------------------------------

    def audience(self, topic: bytes) -> Audience:
        return self._hub.router.audience(topic)

    @property
    def topics(self) -> Topics:
        return self._hub.router.topics

    async def in_thread(self, connection: Connection, act: Callable[..., T], *args: Any) -> T:
        """In a turn of that connection."""
        return await self.readers.read(connection, once(act, *args))

    async def in_turns(self, connection: Connection, work: Work[T]) -> T:
        return await self.readers.read(connection, work)

    def leave(self, connection: Connection) -> None:
        """The connection closes. Its reads are cancelled; the one that a thread works on, after that turn."""
        self.readers.leave(connection)

    # -- tasks -------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """None is cancelled: a thread may be reading for it."""
        self.stopped = True
        self.readers.abandon()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.readers.stop()
        self.index.close()

    def _begin(self, key: tuple[Connection, type[FromReplay]]) -> None:
        self._run(self._begun.pop(key))

    def _run(self, replay: Replay) -> None:
        if self.stopped:
            return
        task = asyncio.get_running_loop().create_task(replay.run())
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._ended(task, replay))

    def _ended(self, task: asyncio.Task[None], replay: Replay) -> None:
        self._tasks.discard(task)
        if isinstance(replay, FromReplay):
            self._forget(replay)
        elif self._spilled.get(replay.connection) is replay:
            del self._spilled[replay.connection]
        if task.cancelled():  # its connection closed
            return
        if error := task.exception():
            log.error("%s: its replay failed", replay.connection, exc_info=error)
            replay.connection.disconnect("replay", "what it waits for cannot be had from the log")

    def _forget(self, replay: FromReplay) -> None:
        mine = self._open[replay.connection]
        mine.discard(replay)
        if not mine:
            del self._open[replay.connection]


def _connections(audiences: Iterable[Audience]) -> set[Connection]:
    """The subscribers that get live messages."""
    return {
        member.owner
        for audience in audiences
        for encoder, members in audience.groups
        if encoder is not SILENT
        for member in members
        if member.owner is not None
    }
