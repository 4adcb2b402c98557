"""Spill: all subscriptions of a connection are served from the log, from the first message not delivered."""

from __future__ import annotations

import logging

from polycast.model import Pattern
from polycast.routing import Audience
from polycast.server.dispatch.outbox import SILENT
from polycast.server.io.connection import Connection
from polycast.server.replay.context import ReplayContext
from polycast.server.replay.interest import TOPICS_AT_MOST, Interest
from polycast.server.replay.replay import Replay

log = logging.getLogger("polycast.replay")


class SpillReplay(Replay):
    """`slow`: the queue of the connection was full; else a bulk batch is read from the log."""

    def __init__(self, context: ReplayContext, connection: Connection, offset: int, slow: bool) -> None:
        super().__init__(context, connection)
        self._first = offset
        self._slow = slow
        self._known: dict[bytes, tuple[Audience, tuple[Interest, ...]]] = {}
        self._made: dict[Pattern, int] = {}
        """Subscriptions made since then, with the offset at which each was made."""
        self._served: dict[Pattern, int] = {}
        """Subscriptions that another replay has served up to an offset."""

    def note_made(self, pattern: Pattern) -> None:
        self._made[pattern] = self.log.next
        self._known.clear()

    def note_served(self, pattern: Pattern, offset: int) -> None:
        self._served[pattern] = offset
        self._known.clear()

    async def find_start(self) -> int:
        if self._slow:
            log.warning("%s: too slow for live delivery; served from the log", self.connection)
        return self._first

    def interests_for(self, topic: bytes) -> tuple[Interest, ...]:
        audience = self.context.audience(topic)
        known = self._known.get(topic)
        if known is None or known[0] is not audience:
            if len(self._known) >= TOPICS_AT_MOST:
                self._known.clear()
            known = self._known[topic] = audience, self._find(topic, audience)
        return known[1]

    def _find(self, topic: bytes, audience: Audience) -> tuple[Interest, ...]:
        mine = self.connection.subscriber
        encoder = next((encoder for encoder, members in audience.groups if mine in members), SILENT)
        if encoder is SILENT:
            return ()
        if not self._made and not self._served:
            return (Interest(encoder),)
        matching = [pattern for pattern in mine.patterns if pattern.matches(topic.decode())]
        made = min(self._made.get(pattern, 0) for pattern in matching)
        return (Interest(encoder, max(made, *(self._served.get(pattern, 0) for pattern in matching))),)

    def go_live(self) -> None:
        self.connection.queue.end_spill()
        if self._slow:
            log.info("%s: caught up", self.connection)
