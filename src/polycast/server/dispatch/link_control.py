"""Carries out the mesh's decisions on links, and announces this broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from polycast.broker import mesh
from polycast.dialects.session import LinkSession
from polycast.model import Burst, Format, Subscribe
from polycast.server.dispatch.outbox import Outbox
from polycast.server.io.connection import Connection

Announcement = tuple[bytes, bytes]
"""Topic and payload of the message with this broker's address."""


class LinkControl:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.announcement: Announcement | None = None
        self.on_close_link: Callable[[Connection, mesh.CloseLink], None] | None = None

    def apply(self, effects: list[mesh.Effect]) -> None:
        for effect in effects:
            connection: Connection = effect.link.owner
            session = cast(LinkSession, connection.session)
            match effect:
                case mesh.SubscribeAt(_, text):
                    self._outbox.send(connection, session.to_subscribe(text))
                case mesh.UnsubscribeAt(_, text):
                    self._outbox.send(connection, session.to_unsubscribe(text))
                case mesh.CloseLink() if self.on_close_link:
                    self.on_close_link(connection, effect)

    def introduce(self, connection: Connection, event: Subscribe) -> None:
        """Sends the announcement to a link that subscribes to it, without waiting for the next period."""
        if not self.announcement or not connection.subscriber.link:
            return
        topic = self.announcement[0].decode()
        may_receive = connection.subscriber.may_receive
        if event.pattern.matches(topic) and (may_receive is None or may_receive(topic)):
            encoded = event.encoder.encode(to_burst(self.announcement), [(0, 1)])
            self._outbox.touch(connection)
            connection.queue.push(encoded.blocks, encoded.size, 1)


def to_burst(announcement: Announcement) -> Burst:
    return Burst.of("polycast", [(*announcement, Format.BYTES)])
