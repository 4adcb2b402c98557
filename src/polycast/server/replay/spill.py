"""A connection that fell behind, or for which more came than can be queued: all of its subscriptions, from the
first message it did not get.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from polycast.model import Pattern
from polycast.routing import Audience
from polycast.server.dispatch.outbox import SILENT
from polycast.server.io.connection import Connection
from polycast.server.replay.interest import TOPICS_AT_MOST, Wish
from polycast.server.replay.replay import Replay

if TYPE_CHECKING:
    from polycast.server.replay.replays import Replays

log = logging.getLogger("polycast.replay")


class SpillReplay(Replay):
    """All subscriptions of a connection. `slow`: it is its own fault."""

    def __init__(self, replays: Replays, connection: Connection, offset: int, slow: bool) -> None:
        super().__init__(replays, connection)
        self._first = offset
        self._slow = slow
        self._known: dict[bytes, tuple[Audience, tuple[Wish, ...]]] = {}
        self._made: dict[Pattern, int] = {}
        """Subscriptions that were made since then, and at which offset."""
        self._served: dict[Pattern, int] = {}
        """Those that another replay has served up to some offset."""

    def note_made(self, pattern: Pattern) -> None:
        self._made[pattern] = self.log.next
        self._known.clear()

    def note_served(self, pattern: Pattern, offset: int) -> None:
        self._served[pattern] = offset
        self._known.clear()

    async def find_start(self) -> int:
        if self._slow:
            log.warning("%s: too slow for what is live; served from the log", self.connection)
        return self._first

    def wishes_for(self, topic: bytes) -> tuple[Wish, ...]:
        audience = self.replays.audience(topic)
        known = self._known.get(topic)
        if known is None or known[0] is not audience:
            if len(self._known) >= TOPICS_AT_MOST:
                self._known.clear()
            known = self._known[topic] = audience, self._find(topic, audience)
        return known[1]

    def _find(self, topic: bytes, audience: Audience) -> tuple[Wish, ...]:
        mine = self.connection.subscriber
        encoder = next((encoder for encoder, members in audience.groups if mine in members), SILENT)
        if encoder is SILENT:
            return ()
        if not self._made and not self._served:
            return (Wish(encoder),)
        matching = [pattern for pattern in mine.patterns if pattern.matches(topic.decode())]
        made = min(self._made.get(pattern, 0) for pattern in matching)
        return (Wish(encoder, max(made, *(self._served.get(pattern, 0) for pattern in matching))),)

    def go_live(self) -> None:
        self.connection.queue.end_spill()
        if self._slow:
            log.info("%s: caught up", self.connection)
