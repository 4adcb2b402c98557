"""What is due to connections. It gathers while a turn is handled; then each of them is flushed once."""

from __future__ import annotations

from collections.abc import Callable

from polycast.broker import Delivery, Hub
from polycast.routing import Audience, Subscriber
from polycast.server.io.connection import Connection
from polycast.server.replay.silent import SILENT


class Outgoing:
    def __init__(self, hub: Hub, owes: Callable[[Connection], bool]) -> None:
        self._hub = hub
        self._owes = owes
        self._touched: dict[Connection, None] = {}
        self.delivered = 0
        """How many messages somebody hears, since this was set back."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        touched = self._touched
        for audience, burst, slices, skip in deliveries:
            count = sum([stop - start for start, stop in slices])
            self.delivered += count
            for encoder, members in audience.groups:
                if encoder is SILENT or (len(members) == 1 and _is_spilled(members[0])):
                    continue
                blocks, size, lossy = encoder.encode(burst, slices)
                for member in members:
                    if member is not skip and member.owner is not None:
                        connection: Connection = member.owner
                        touched[connection] = None
                        connection.push(blocks, size, count)
                        if lossy:
                            connection.port.counters.lossy += lossy

    def deliver_held(self, deliveries: list[Delivery]) -> None:
        """What waited for the log. Some who were to hear it may be served from the log by now, or not any more."""
        for delivery in deliveries:
            audience, burst, slices, skip = delivery
            topics = {burst.topics[run] for run, _, _ in burst.runs(slices)}
            if all(self._hub.router.topic(topic).audience is audience for topic in topics):
                self.deliver([delivery])
                continue
            members = {member for member, _ in audience.members}
            for run, first, last in burst.runs(slices):
                now = self._hub.router.topic(burst.topics[run]).audience
                both = frozenset((member, encoder) for member, encoder in now.members if member in members)
                self.deliver([Delivery(Audience(both), burst, [(first, last)], skip)])

    def send(self, connection: Connection, data: bytes) -> None:
        """Words for this connection alone."""
        self.touch(connection)
        if data:
            connection.push((data,), len(data), 0)

    def send_owed(self, connection: Connection, data: bytes) -> None:
        """The same; one that only waited for them may go."""
        self.send(connection, data)
        if connection.heard_out and not self._owes(connection):
            connection.leave()

    def touch(self, connection: Connection) -> None:
        self._touched[connection] = None

    def forget(self, connection: Connection) -> None:
        self._touched.pop(connection, None)

    def flush(self) -> None:
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.flush()


def _is_spilled(member: Subscriber) -> bool:
    """Then nothing need be made for it, nor be kept for it in a form of its own."""
    return member.owner is not None and member.owner.spilled
